#include "phalanx/cli/preprocess_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;

TEST(PreprocessCommand, AStoppedPreprocessLeavesNothingBehind) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "out");
  std::string text;
  for (int line = 0; line < 1 << 16; ++line) text += "a document of some words\n";
  write_file(folder / "a.txt", text);
  std::vector<std::string> args = {"preprocess",
                                   "--output-prefix",
                                   folder / "out" / "a",
                                   "--tokenizer-type",
                                   "ByteTokenizer",
                                   "--workers",
                                   "1",
                                   "--input"};
  // Gigabytes, of which it reads until the signal comes.
  for (int i = 0; i < 4000; ++i) args.push_back(folder / "a.txt");
  std::thread user([&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::filesystem::is_empty(folder / "out") && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::filesystem::is_empty(folder / "out")) return;
    ::kill(::getpid(), SIGTERM);
  });
  const Outcome outcome = run(args);
  user.join();
  EXPECT_EQ(outcome.code, kExitSignal);
  EXPECT_THAT(outcome.out, HasSubstr("stopped by SIGTERM: nothing was written"));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));
}

TEST(PreprocessCommand, WhatIsWrongIsTold) {
  const TempFolder folder;
  EXPECT_THAT(run({"preprocess", "--input", "x", "--output-prefix", "y", "--split-sentences",
                   "--tokenizer-type", "ByteTokenizer"})
                  .err,
              HasSubstr("--split-sentences: documents are not cut into sentences"));
  EXPECT_THAT(run({"preprocess", "--input", "x", "--output-prefix", "y"}).err,
              HasSubstr("--tokenizer-type or --tokenizer-model is required"));
  const Outcome missing = run({"inspect", "data", (folder / "none").string()});
  EXPECT_EQ(missing.code, kExitFailed);
  EXPECT_THAT(missing.err, HasSubstr("none.idx"));
  EXPECT_EQ(run({"inspect", "data"}).code, kExitUsage);
  EXPECT_EQ(run({"inspect", "nothing"}).code, kExitUsage);
}

TEST(PreprocessCommand, BrokenLinesEndItOrAreSkippedAndCounted) {
  const TempFolder folder;
  write_file(folder / "a.jsonl", "{\"text\": \"a\"}\n{\n{\"text\": \"b\"}\n");
  std::vector<std::string> args = {"preprocess",      "--input",    folder / "a.jsonl",
                                   "--output-prefix", folder / "a", "--tokenizer-type",
                                   "ByteTokenizer"};
  EXPECT_EQ(run(args).code, kExitFailed);
  args.insert(args.end(), {"--on-error", "skip"});
  const Outcome outcome = run(args);
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("a_text_document: 2 documents, 2 tokens"));
  EXPECT_THAT(outcome.out, HasSubstr("1 broken lines were skipped, the first: "));
}

TEST(PreprocessCommand, FlagsOfMegatronThatAskForWhatHoldsAreTaken) {
  const TempFolder folder;
  write_file(folder / "a.txt", "a\n");
  EXPECT_EQ(
      run({"preprocess", "--input", folder / "a.txt", "--output-prefix", folder / "a",
           "--tokenizer-type", "ByteTokenizer", "--dataset-impl", "mmap", "--log-interval", "100"})
          .code,
      kExitDone);
  EXPECT_EQ(run({"preprocess", "--input", folder / "a.txt", "--output-prefix", folder / "a",
                 "--tokenizer-type", "ByteTokenizer", "--dataset-impl", "lazy"})
                .code,
            kExitUsage);
}

}  // namespace
}  // namespace phx
