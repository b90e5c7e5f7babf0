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

TEST(DataConfig, SplitSharesAddUpToOne) {
  DataConfig config;
  config.split = "8, 1,1";
  const std::array<double, 3> shares = config.split_shares();
  EXPECT_DOUBLE_EQ(shares[0], 0.8);
  EXPECT_DOUBLE_EQ(shares[2], 0.1);
  config.split = "100";
  EXPECT_EQ(config.split_shares(), (std::array<double, 3>{1, 0, 0}));
  EXPECT_EQ(parse({"--split", "9,x"})[0].text, "--split 9,x is not a number");
  EXPECT_EQ(parse({"--split", "0,0,0"})[0].text, "--split 0,0,0 has no share above 0");
  EXPECT_EQ(parse({"--split", "1,2,3,4"})[0].text, "--split 1,2,3,4 has more than three shares");
}

TEST(DataConfig, TokenizersOfOtherModelsAreRefused) {
  EXPECT_EQ(parse({"--tokenizer-type", "BertWordPieceCase"})[0].kind, ProblemKind::refused);
  EXPECT_TRUE(
      parse({"--tokenizer-type", "NullTokenizer", "--null-tokenizer-pad-id", "-1"}).empty());
}

}  // namespace
}  // namespace phx
