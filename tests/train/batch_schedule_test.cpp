#include "phalanx/train/batch_schedule.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

std::vector<std::string> wrong(const char* text, int64_t seq_length = 1) {
  std::vector<std::string> lines;
  for (const Problem& problem : BatchSchedule::problems(text, seq_length))
    lines.push_back(problem.text + " | " + problem.hint);
  return lines;
}

using Lines = std::vector<std::string>;

TEST(BatchSchedule, ThresholdsAreTokensAndCountInSamples) {
  const BatchSchedule batches = BatchSchedule::parse("0:768 250B:1536, 0.5T:3K", 4096);
  EXPECT_EQ(batches.sizes(), (std::set<int64_t>{768, 1536, 3000}));
  EXPECT_EQ(batches.largest(), 3000);
  EXPECT_EQ(batches.size_at(0), 768);
  EXPECT_EQ(batches.size_at(61035155), 768);  // 250e9 / 4096 = 61035156.25
  EXPECT_EQ(batches.size_at(61035156), 1536);
  EXPECT_EQ(batches.size_at(122070311), 1536);  // 500e9 / 4096 = 122070312.5
  EXPECT_EQ(batches.size_at(122070312), 3000);
  EXPECT_EQ(batches.size_at(1'000'000'000'000), 3000);
}

TEST(BatchSchedule, DecimalsAndSmallLettersAreExact) {
  const BatchSchedule batches = BatchSchedule::parse("0:4 2.3b:8 1e10:12", 1);
  EXPECT_EQ(batches.size_at(2'299'999'999), 4) << "2.3 * 1e9 is a little less than 2.3 billion";
  EXPECT_EQ(batches.size_at(2'300'000'000), 8);
  EXPECT_EQ(batches.size_at(9'999'999'999), 8);
  EXPECT_EQ(batches.size_at(10'000'000'000), 12);
}

TEST(BatchSchedule, TheLastSmallBatchMayReachOverTheThreshold) {
  const BatchSchedule batches = BatchSchedule::parse("0:4 10:8 26:2", 1);
  // 0 4 8 | 12 20 | 28 30 32: the size is that of the samples consumed before.
  const std::vector<int64_t> consumed = {0, 4, 8, 12, 20, 28, 30, 32};
  for (size_t i = 0; i < consumed.size(); ++i) {
    EXPECT_EQ(batches.after(0, int64_t(i)), consumed[i]);
    EXPECT_EQ(batches.after(consumed[2], int64_t(i)), batches.after(0, int64_t(i) + 2));
    EXPECT_EQ(batches.iterations_within(consumed[i]), int64_t(i));
    EXPECT_EQ(batches.iterations_within(consumed[i] + 1), int64_t(i)) << "no batch of 1";
  }
  EXPECT_EQ(batches.iterations_within(27), 4) << "12 + 8 and 7 left: none of 8";
}

TEST(BatchSchedule, OneSizeMultiplies) {
  const BatchSchedule batches = BatchSchedule::constant(6);
  EXPECT_EQ(batches.size_at(1000), 6);
  EXPECT_EQ(batches.after(5, 3), 23);
  EXPECT_EQ(batches.iterations_within(23), 3);
}

TEST(BatchSchedule, RefusesWhatItCannotReadAndNamesTheEntry) {
  const std::string hint = " | e.g. 250B:1536; K, M, B and T are 1e3, 1e6, 1e9 and 1e12";
  const std::string flag = "--step-batch-size-schedule: ";
  for (const char* entry :
       {"768", "0:", ":8", "0:8x", "1G:8", "-1:8", "1.5:8", "0:8:9", "nan:8", "2e30:8", "0:0.5"})
    EXPECT_EQ(wrong(entry), Lines{flag + "\"" + entry + "\" is not TOKENS:SIZE" + hint});
  EXPECT_EQ(wrong(" ,"), Lines{flag + "has no entries | e.g. \"0:768 250B:1536\""});
  EXPECT_EQ(wrong("0:0"), Lines{flag + "the size of \"0:0\" should be between 1 and 16777216 | "});
}

TEST(BatchSchedule, RefusesThresholdsThatDoNotRiseFromZeroAllAtOnce) {
  const std::string flag = "--step-batch-size-schedule: ";
  EXPECT_EQ(
      wrong("5:8 1K:x 100:16 50:8"),
      (Lines{flag + "the first entry is \"5:8\", but a run begins with 0 tokens | 0:8",
             flag + "\"1K:x\" is not TOKENS:SIZE | e.g. 250B:1536; K, M, B and T are 1e3, 1e6, 1e9 "
                    "and 1e12",
             flag + "\"50:8\" should come later than \"100:16\" | thresholds rise from entry to "
                    "entry"}));
  EXPECT_EQ(wrong("0:4 30:8 40:16"), Lines{});
  EXPECT_EQ(wrong("0:4 30:8 40:16", 24),
            Lines{flag + "\"30:8\" and \"40:16\" begin with the same sample, number 1 of "
                         "--seq-length 24 | leave one of them out"});
  EXPECT_EQ(testing::error_of([] { BatchSchedule::parse("4", 24); }),
            "the batch size has no schedule\nerror: --step-batch-size-schedule: \"4\" is not "
            "TOKENS:SIZE\n  hint: e.g. 250B:1536; K, M, B and T are 1e3, 1e6, 1e9 and 1e12\n");
}

}  // namespace
}  // namespace phx
