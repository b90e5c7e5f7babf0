#include "phalanx/cli/corpus_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "phalanx/base/json_lines.h"
#include "phalanx/data/story_corpus.h"
#include "phalanx/data/token_file.h"
#include "phalanx/text/byte_tokenizer.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int run(std::vector<std::string> args) { return run_corpus(args); }

TEST(CorpusCommand, TextTokensAndJsonHoldTheSameDocuments) {
  const TempFolder folder;
  for (const char* name : {"x.txt", "x.u16", "x.i32", "x.jsonl"}) {
    ASSERT_EQ(run({"--output", folder / name, "--megabytes", "0.05", "--seed", "3"}), 0) << name;
  }
  const std::string text = read_file(folder / "x.txt");
  EXPECT_EQ(text, write_stories(3, 50000));
  for (const char* name : {"x.u16", "x.i32"}) {
    const TokenFile tokens(folder / name);
    std::vector<int32_t> all(tokens.num_tokens());
    for (int64_t i = 0; i < tokens.num_tokens(); ++i) all[i] = tokens.token(i);
    EXPECT_EQ(tokens.largest_token(), ByteTokenizer::kEod);
    EXPECT_EQ(ByteTokenizer::decode(all), text) << name;
  }
  std::string lines;
  read_json_lines(folder / "x.jsonl", [&](const nlohmann::json& object, int64_t) {
    lines += object["text"].get<std::string>() + '\n';
  });
  EXPECT_EQ(lines, text);
}

TEST(CorpusCommand, AnUnknownSuffixIsRefused) {
  const TempFolder folder;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--output", folder / "x.bin", "--seed", "-1"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("x.bin: the suffix should be .txt, .jsonl, .u16 or .i32"),
                    HasSubstr("--seed -1 should be 0 or more")));
}

TEST(CorpusCommand, WrongUsageIsTwoAndHelpIsZero) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--megabytes", "1"}), 2);
  EXPECT_EQ(run({"--output", "x.txt", "--megabytes", "-1"}), 2);
  EXPECT_EQ(run({"--output", "x.txt", "--sead", "1"}), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("--sead"));
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              HasSubstr("phalanx corpus --output stories.u16"));
}

}  // namespace
}  // namespace phx
