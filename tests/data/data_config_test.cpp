#include "phalanx/data/data_config.h"

#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/base/options.h"
#include "support/temp_folder.h"

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

TEST(DataConfig, EveryPrefixHasAWeightAboveZeroOrNoneHas) {
  EXPECT_EQ(parse({"--data-path", "-1", "a", "2", "b"})[0].text,
            "--data-path gives a the weight -1; a weight is above 0");
  EXPECT_EQ(parse({"--train-data-path", "0.5", "a", "0.5"})[0].text,
            "--train-data-path has 3 words and the weight 0.5: weights stand before prefixes, one "
            "before each");
  EXPECT_EQ(parse({"--data-path", "1", "a", "b", "c"})[0].text,
            "--data-path has 1 weights before 2 prefixes: either every prefix has a weight before "
            "it, or none has");
  EXPECT_TRUE(parse({"--data-path", "a", "b", "c"}).empty());
  // Megatron takes an odd number of words as prefixes, and files may be called so.
  const TempFolder folder;
  write_file(folder / "7.idx", "");
  const Path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_TRUE(parse({"--data-path", "7"}).empty());
  std::filesystem::current_path(before);
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
  EXPECT_EQ(parse({"--split", "0,0,0"})[0].text, "--split 0,0,0 has no share above 0");
  EXPECT_EQ(parse({"--split", "1,2,3,4"})[0].text, "--split 1,2,3,4 has more than three shares");
}

// The values are those of Megatron's parse_and_normalize_split.
TEST(DataConfig, SplitIsReadAsMegatronsPatternReadsIt) {
  const auto shares = [](const char* text) {
    DataConfig config;
    config.split = text;
    return config.split_shares();
  };
  using Shares = std::array<double, 3>;
  EXPECT_EQ(shares("969, 30, 1"), (Shares{0.969, 0.03, 0.001}));
  EXPECT_EQ(shares("[0.9, 0.1]"), (Shares{0.9, 0.1, 0}));
  EXPECT_EQ(shares("90/5/5"), (Shares{0.9, 0.05, 0.05}));
  EXPECT_EQ(shares("7;2;;1"), (Shares{0.7, 0.2, 0.1}));
  EXPECT_EQ(shares("80 .5 1."),
            (Shares{0.9815950920245399, 0.006134969325153374, 0.012269938650306749}));
  EXPECT_EQ(shares("9,x"), (Shares{1, 0, 0}));
  EXPECT_EQ(shares("-3,1"), (Shares{0.75, 0.25, 0}));
  EXPECT_EQ(shares("1e3,5"), (Shares{1 / 9.0, 3 / 9.0, 5 / 9.0}));
  EXPECT_EQ(parse({"--split", "1.2.3"})[0].text,
            "--split 1.2.3 holds 1.2.3, which is not a number");
  EXPECT_EQ(parse({"--split", "1,."})[0].text, "--split 1,. holds ., which is not a number");
  EXPECT_EQ(parse({"--split", "all"})[0].text, "--split all has no number");
}

TEST(DataConfig, TokenizersOfOtherModelsAreRefused) {
  EXPECT_EQ(parse({"--tokenizer-type", "BertWordPieceCase"})[0].kind, ProblemKind::refused);
  EXPECT_TRUE(
      parse({"--tokenizer-type", "NullTokenizer", "--null-tokenizer-pad-id", "-1"}).empty());
}

}  // namespace
}  // namespace phx
