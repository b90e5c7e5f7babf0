#include "data/data_config.h"

#include <gtest/gtest.h>

#include "base/options.h"

namespace phx {
namespace {

Problems parse(std::vector<std::string> args) {
  DataConfig config;
  OptionSet options;
  options.add("Data", config);
  ParseReport report = options.parse(args);
  options.check(data_rules(), report);
  return report.problems;
}

TEST(DataConfig, TokensHaveOneSource) {
  EXPECT_TRUE(parse({"--data-path", "0.3", "a", "0.7", "b", "--split", "98,1,1"}).empty());
  EXPECT_EQ(parse({"--mock-data", "--data-path", "a"})[0].text,
            "--mock-data and --data-path a exclude each other: tokens have one source");
  EXPECT_EQ(parse({"--token-file", "t.bin", "--train-data-path", "a"}).size(), 1u);
  EXPECT_EQ(parse({"--data-path", "a", "--train-data-path", "b"}).size(), 1u);
}

TEST(DataConfig, AValidationBlendNeedsATrainingBlend) {
  EXPECT_EQ(parse({"--valid-data-path", "a"})[0].flag, "--valid-data-path");
  EXPECT_TRUE(parse({"--valid-data-path", "a", "--train-data-path", "b"}).empty());
}

TEST(DataConfig, TokenizersOfOtherModelsAreRefused) {
  EXPECT_EQ(parse({"--tokenizer-type", "BertWordPieceCase"})[0].kind, ProblemKind::refused);
  EXPECT_TRUE(
      parse({"--tokenizer-type", "NullTokenizer", "--null-tokenizer-pad-id", "-1"}).empty());
}

}  // namespace
}  // namespace phx
