#include "phalanx/cli/tokenizer_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/cli/usage_error.h"
#include "phalanx/data/story_corpus.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

int run(std::vector<std::string> args) { return run_tokenizer(args); }

std::string output_of(std::vector<std::string> args) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run(std::move(args)), 0);
  fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(TokenizerCommand, ATrainedTokenizerEncodesAndDecodes) {
  const TempFolder folder;
  write_file(Path(folder / "stories.txt"), write_stories(1, 60000));
  const std::string model = folder / "mine";
  EXPECT_THAT(output_of({"train", "--input", folder / "stories.txt", "--output", model,
                         "--vocab-size", "500"}),
              HasSubstr("500 tokens (243 merges, 1 special) from 60"));
  const std::string text = "The old dog said: don't, Größe 123!";
  const std::string ids = output_of({"encode", "--tokenizer-model", model, "--text", text});
  std::vector<std::string> decode = {"decode", "--tokenizer-model", model, "--ids"};
  std::istringstream numbers(ids);
  for (std::string id; numbers >> id;) decode.push_back(id);
  EXPECT_LT(decode.size(), text.size());  // some bytes were merged
  EXPECT_EQ(output_of(decode), text + "\n");
  EXPECT_THAT(output_of({"show", "--tokenizer-model", model, "--count", "2"}),
              HasSubstr("end of document: 0 <|endoftext|>\n"));
}

TEST(TokenizerCommand, LinesOfJsonGiveLinesOfIds) {
  const TempFolder folder;
  write_file(Path(folder / "lines.jsonl"), "\"ab\"\n{\"text\":\"\\u00e9\"}\n");
  EXPECT_EQ(output_of({"encode", "--tokenizer-type", "ByteTokenizer", "--jsonl", "--input",
                       folder / "lines.jsonl"}),
            "[97,98]\n[195,169]\n");
}

TEST(TokenizerCommand, WrongUsageIsTold) {
  EXPECT_THROW(run({"shuffle"}), UsageError);
  EXPECT_THROW(run({"encode", "--text", "x"}), UsageError);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"train", "--vocab-size", "7"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--output"));
  EXPECT_THAT(output_of({"encode", "--help"}), HasSubstr("phalanx tokenizer encode"));
}

}  // namespace
}  // namespace phx
