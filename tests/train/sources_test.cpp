// What a run needs of its data, looked at before it begins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/data/indexed/indexed_writer.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::tiny_run;

// Samples are of 24 tokens: `samples` of them in documents of one sample each.
void write_pair(const Path& prefix, int64_t samples) {
  IndexedWriter writer(prefix, TokenCode::u16);
  for (int64_t i = 0; i < samples; ++i) {
    writer.add_sequence(std::vector<int32_t>(24, int32_t(i % 50)));
    writer.end_document();
  }
  writer.add_sequence(std::vector<int32_t>{7});  // the last label
  writer.end_document();
  writer.commit();
}

// 20 iterations of 6 samples; 4 evaluations of 2 batches: 48 samples.
struct Needs {
  Needs() {
    config.data.mock_data = false;
    config.train.eval_interval = 5;
    config.train.eval_iters = 2;
    write_pair(folder / "train", 200);
    config.data.train_data_path = {folder / "train"};
  }
  void validate_on(int64_t samples_of_each) {
    write_pair(folder / "a", samples_of_each);
    write_pair(folder / "b", samples_of_each);
    config.data.valid_data_path = {folder / "a", folder / "b"};
  }
  TempFolder folder;
  RunConfig config = tiny_run();
};

std::string warning_of(const RunConfig& config) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  const Sources sources(config);
  return ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout();
}

TEST(Sources, ValidationDataThatIsTooShortIsToldBeforeTheRun) {
  Needs run;
  run.validate_on(15);
  EXPECT_THAT(
      warning_of(run.config),
      HasSubstr(
          "the run takes 48 validation samples (4 evaluations of --eval-iters 2 batches of "
          "6), but there are 30 samples blended from 2 datasets: some are evaluated more than "
          "once\n  hint: a weight before each prefix of the blend lets the data be repeated; "
          "--eval-iters 1 is the most that fits"));
  run.config.train.eval_iters = 1;
  EXPECT_EQ(warning_of(run.config), "");
  run.config.train.eval_iters = 2;
  run.config.data.valid_data_path.insert(run.config.data.valid_data_path.begin(), "1");
  run.config.data.valid_data_path.insert(run.config.data.valid_data_path.begin() + 2, "1");
  EXPECT_GE(Sources(run.config).valid->num_samples(), 48);
}

TEST(Sources, JustEnoughValidationDataIsEnough) {
  Needs run;
  run.validate_on(24);
  EXPECT_EQ(Sources(run.config).valid->num_samples(), 48);
}

TEST(Sources, ShortValidationDataIsNoMatterWhereItIsReadInRounds) {
  Needs run;
  run.validate_on(15);
  run.config.data.dataloader_type = DataloaderType::cyclic;
  EXPECT_EQ(warning_of(run.config), "");
}

TEST(Sources, ShortValidationDataIsNoMatterWhereNothingIsEvaluated) {
  Needs run;
  run.validate_on(15);
  run.config.train.eval_iters = 0;
  EXPECT_EQ(warning_of(run.config), "");
}

TEST(Sources, TestDataIsReadOnce) {
  Needs run;
  run.validate_on(24);
  run.config.data.test_data_path = {run.folder / "a", run.folder / "b"};
  EXPECT_EQ(warning_of(run.config), "");
  write_pair(run.folder / "c", 4);
  run.config.data.test_data_path = {run.folder / "c", run.folder / "c"};
  EXPECT_THAT(warning_of(run.config),
              HasSubstr("the run takes 12 test samples (1 evaluation of --eval-iters 2 batches of "
                        "6), but there are 8 samples"));
}

TEST(Sources, TrainingDataThatIsTooShortIsRefusedBeforeTheRun) {
  Needs run;
  write_pair(run.folder / "a", 50);
  run.config.data.train_data_path = {run.folder / "a", run.folder / "a"};
  EXPECT_EQ(error_of([&] { Sources sources(run.config); }),
            "the run trains on 120 samples, but there are 100 samples blended from 2 datasets\n"
            "  hint: a weight before each prefix of the blend lets the data be repeated");
}

// A run that evaluated more often before it was stopped is further on than the data reaches.
TEST(Sources, ValidationBeginsAnewBehindItsEnd) {
  Needs run;
  run.validate_on(24);
  const Sources sources(run.config);
  Sample first, again;
  sources.valid->sample(1, first);
  sources.valid->sample(49, again);
  EXPECT_EQ(first.tokens, again.tokens);
}

}  // namespace
}  // namespace phx
