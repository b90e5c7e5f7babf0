#include "phalanx/cli/merge_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;

TEST(MergeCommand, TokensWithoutAnIndexAreNotLeftOutOfAMerge) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "parts");
  write_file(folder / "a.jsonl", "{\"text\": \"abc\"}\n");
  for (const char* name : {"a", "b"})
    ASSERT_EQ(run({"preprocess", "--input", folder / "a.jsonl", "--output-prefix",
                   folder / "parts" / name, "--tokenizer-type", "ByteTokenizer"})
                  .code,
              kExitDone);
  const std::vector<std::string> merge = {"merge", "--input", folder / "parts", "--output-prefix",
                                          folder / "all"};
  EXPECT_EQ(run(merge).code, kExitDone);
  std::filesystem::remove(folder / "parts" / "b_text_document.idx");
  const Outcome outcome = run(merge);
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("b_text_document.bin has no b_text_document.idx beside it"));
}

TEST(MergeCommand, WhatIsMissingIsNamed) {
  const TempFolder folder;
  const Outcome empty = run({"merge", "--input", folder.path(), "--output-prefix", folder / "all"});
  EXPECT_EQ(empty.code, kExitFailed);
  EXPECT_THAT(empty.err, HasSubstr(" holds no pairs of .bin and .idx files"));
  write_file(folder / "a.idx", "");
  EXPECT_THAT(run({"merge", "--input", folder.path(), "--output-prefix", folder / "all"}).err,
              HasSubstr("a.idx has no a.bin beside it"));
  const Outcome nothing = run({"merge"});
  EXPECT_EQ(nothing.code, kExitUsage);
  EXPECT_THAT(nothing.err, HasSubstr("--input"));
  EXPECT_THAT(nothing.err, HasSubstr("--output-prefix"));
}

}  // namespace
}  // namespace phx
