#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/things_config.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

TEST(OptionParse, ValuesComeAfterASpaceOrAnEqualsSign) {
  const Parsed p = parse({"--width", "8", "--rate=0.25", "--name", "x y", "--shape=square"});
  EXPECT_TRUE(p.report.ok()) << format_problems(p.report.problems);
  EXPECT_EQ(p.config.width, 8);
  EXPECT_EQ(p.config.rate, 0.25);
  EXPECT_EQ(p.config.name, "x y");
  EXPECT_EQ(p.config.shape, Form::square);
}

TEST(OptionParse, ListsTakeValuesUpToTheNextFlag) {
  const Parsed p = parse({"--sizes", "1", "2", "3", "--width", "8", "--modules", "mlp"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(p.config.sizes, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(p.config.modules, Texts{"mlp"});
}

TEST(OptionParse, SwitchesMayCarryAValue) {
  EXPECT_TRUE(parse({"--width", "1", "--fast"}).config.fast);
  EXPECT_FALSE(parse({"--width", "1", "--fast=false"}).config.fast);
  EXPECT_TRUE(parse({"--width", "1", "--disable-bias=false"}).config.add_bias);
  EXPECT_EQ(texts(parse({"--width", "1", "--fast=perhaps"}).report),
            Texts{"--fast perhaps is neither true nor false"});
}

TEST(OptionParse, AliasesAndMeaningSwitchesAreTaken) {
  const Parsed p = parse({"--breadth", "3", "--use-squares"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(p.config.width, 3);
  EXPECT_EQ(p.config.shape, Form::square);
}

TEST(OptionParse, TheLastOfARepeatedFlagCounts) {
  EXPECT_EQ(parse({"--width", "1", "--width", "2"}).config.width, 2);
}

TEST(OptionParse, ANegativeNumberIsAValueAndNotAFlag) {
  EXPECT_EQ(texts(parse({"--width", "-4"}).report), Texts{"--width -4 should be positive"});
  EXPECT_EQ(texts(parse({"--width", "4", "--rate", "-.5"}).report),
            Texts{"--rate -.5 should be between 0 and 1"});
}

TEST(OptionParse, BadValuesSayWhatIsWrong) {
  EXPECT_EQ(texts(parse({"--width", "1.5"}).report), Texts{"--width 1.5 is not an integer"});
  EXPECT_EQ(texts(parse({"--width", "99999999999999999999"}).report),
            Texts{"--width 99999999999999999999 is too large for an integer of 64 bits"});
  EXPECT_EQ(texts(parse({"--width", "1", "--rate", "nan"}).report),
            Texts{"--rate nan is not a number"});
  EXPECT_EQ(texts(parse({"--width", "1", "--limit", "-1"}).report),
            Texts{"--limit -1 should be 0 or more"});
  EXPECT_EQ(texts(parse({"--width", "1", "--freq", "[1"}).report),
            Texts{"--freq [1 is not a pattern: expected ',' or ']' at character 3"});
  EXPECT_EQ(texts(parse({"--width", "--fast"}).report), Texts{"--width needs a value"});
}

TEST(OptionParse, AWrongChoiceNamesTheChoicesAndTheNearest) {
  const Parsed p = parse({"--width", "1", "--shape", "sqare", "--modules", "mlp", "mpl"});
  ASSERT_EQ(texts(p.report), (Texts{"--shape sqare is not one of round, square",
                                    "--modules mpl is not one of mlp, attention"}));
  EXPECT_EQ(p.report.problems[0].hint, "did you mean square?");
  EXPECT_EQ(p.report.problems[1].hint, "did you mean mlp?");
}

TEST(OptionParse, AChoiceOfMegatronsThatIsMissingHereIsRefusedWithTheReason) {
  const Parsed p = parse({"--width", "1", "--shape", "spiral"});
  ASSERT_EQ(texts(p.report), Texts{"--shape spiral: spirals are not in this build"});
  EXPECT_EQ(p.report.problems[0].kind, ProblemKind::refused);
  EXPECT_EQ(p.report.problems[0].hint, "use one of round, square");
}

TEST(OptionParse, AnUnknownFlagIsToldOnceWithTheNearest) {
  const Parsed p = parse({"--widht", "8", "9", "--width", "8"});
  ASSERT_EQ(p.report.problems.size(), 1u);
  EXPECT_EQ(p.report.problems[0].kind, ProblemKind::unknown);
  EXPECT_EQ(p.report.problems[0].text, "--widht is no flag of Phalanx or Megatron");
  EXPECT_EQ(p.report.problems[0].hint, "did you mean --width?");
  EXPECT_EQ(parse({"--width", "8", "--zzzzzzzzzzzz"}).report.problems[0].hint,
            "--help lists the flags");
}

TEST(OptionParse, NamesAreNotAbbreviated) {
  EXPECT_EQ(parse({"--wid", "8"}).report.problems[0].kind, ProblemKind::unknown);
}

TEST(OptionParse, AWordWithoutAFlagIsAProblem) {
  EXPECT_EQ(texts(parse({"--width", "8", "9"}).report), Texts{"\"9\" belongs to no flag"});
}

TEST(OptionParse, OneDashMakesNoFlag) {
  const Parsed p = parse({"-width", "8", "--width", "9", "-zzzzzzzzzz", "-config", "no.yaml"});
  ASSERT_EQ(texts(p.report), (Texts{"-width is no flag: flags begin with two dashes",
                                    "-zzzzzzzzzz is no flag: flags begin with two dashes",
                                    "-config is no flag: flags begin with two dashes"}));
  EXPECT_EQ(p.report.problems[0].hint, "did you mean --width?");
  EXPECT_EQ(p.report.problems[1].hint, "--help lists the flags");
  EXPECT_EQ(p.report.problems[2].hint, "did you mean --config?");
  EXPECT_EQ(p.config.width, 9);
  EXPECT_TRUE(parse({"-h"}).report.help);
}

TEST(OptionParse, AnIntegerWrittenAsAFloatIsNamedInTheHint) {
  EXPECT_EQ(parse({"--width", "1e3"}).report.problems[0].hint,
            "an integer is written without a point or exponent: 1000");
  EXPECT_EQ(parse({"--width", "8", "--sizes", "2", "4.0"}).report.problems[0].hint,
            "an integer is written without a point or exponent: 2 4");
  EXPECT_EQ(parse({"--width", "1.5"}).report.problems[0].hint, "how wide");
  EXPECT_EQ(parse({"--width", "-4"}).report.problems[0].hint, "how wide");
}

TEST(OptionParse, AllProblemsAreToldAtOnce) {
  const Parsed p = parse({"--rate", "2", "--shape", "flat", "--nope", "--colour", "red"});
  EXPECT_EQ(p.report.problems.size(), 5u);  // and the missing --width
  EXPECT_EQ(p.report.problems.back().text, "--width is required: no default is right");
}

TEST(OptionParse, AMissingFlagIsNotToldTwiceWhenItsValueIsBad) {
  EXPECT_EQ(parse({"--width", "wide"}).report.problems.size(), 1u);
}

TEST(OptionParse, RefusedFlagsGiveTheReasonUnlessTheValueHoldsAnyway) {
  const Parsed p = parse({"--width", "8", "--colour", "red", "--ink", "a", "b"});
  EXPECT_EQ(format_problems(p.report.problems),
            "error: --colour: all is grey\n  hint: leave it out, or use --colour grey or gray\n"
            "error: --ink: all is grey\n  hint: use a pencil\n");
  EXPECT_TRUE(parse({"--width", "8", "--colour", "gray"}).report.ok());
}

TEST(OptionParse, FieldsOfOlderRunsThatAreCataloguedByNowAreSkipped) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  set.add(kCatalogue);
  ParseReport report;
  set.load_json({{"width", 7}, {"old_size", 3}, {"nope", 1}}, report);
  EXPECT_EQ(texts(report), Texts{"nope is no flag of Phalanx or Megatron"});
  EXPECT_EQ(config.width, 7);
}

TEST(OptionParse, FlagsWinOverTheConfigFile) {
  const std::string file = testing::TempDir() + "phx_options_test.yaml";
  std::ofstream(file) << "width: 5\nname: from-file\n";
  const Parsed p = parse({"--width", "6", "--config", file});
  std::remove(file.c_str());
  EXPECT_TRUE(p.report.ok()) << format_problems(p.report.problems);
  EXPECT_EQ(p.config.width, 6);
  EXPECT_EQ(p.config.name, "from-file");
  const Parsed missing = parse({"--width", "6", "--yaml-cfg=/no/such/file"});
  EXPECT_EQ(texts(missing.report), Texts{"--yaml-cfg /no/such/file cannot be read"});
}

TEST(OptionParse, AnEmptyConfigFileIsToldToBeEmpty) {
  const std::string file = testing::TempDir() + "phx_options_test_empty.yaml";
  std::ofstream{file};
  const Parsed empty = parse({"--width", "6", "--config", file});
  std::remove(file.c_str());
  EXPECT_EQ(texts(empty.report), Texts{"--config " + file + " is empty"});
  const Parsed folder = parse({"--width", "6", "--config", testing::TempDir()});
  EXPECT_EQ(texts(folder.report), Texts{"--config " + testing::TempDir() + " cannot be read"});
}

TEST(OptionParse, ValuesOfAnUnknownOrRefusedFlagAreConsumed) {
  const Parsed p = parse({"--ink", "red", "blue", "--nope", "1", "2", "--width", "8"});
  ASSERT_EQ(p.report.problems.size(), 2u);  // none about "red", "blue", 1 or 2
  EXPECT_EQ(p.report.problems[0].flag, "--ink");
  EXPECT_EQ(p.report.problems[1].flag, "--nope");
  EXPECT_EQ(p.config.width, 8);
}

TEST(OptionParse, ALaterGoodValueMakesUpForABadOne) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  const ParseReport report = set.parse(Texts{"--width", "wide", "--width", "3"});
  EXPECT_EQ(report.problems.size(), 1u);
  EXPECT_FALSE(set.at("width").failed);
  EXPECT_EQ(set.number("width"), 3.0);
}

TEST(OptionParse, HelpAsksForNoRequiredFlag) {
  const Parsed p = parse({"--help", "--rate", "0.1"});
  EXPECT_TRUE(p.report.help);
  EXPECT_TRUE(p.report.ok());
}

TEST(OptionParse, AMeaningSwitchThatIsTurnedOffChangesNothing) {
  EXPECT_EQ(parse({"--width", "1", "--shape", "square", "--use-squares=false"}).config.shape,
            Form::square);
  EXPECT_EQ(parse({"--width", "1", "--use-squares=false"}).config.shape, Form::round);
}

TEST(OptionParse, AnIntegerThatADoubleCannotHoldIsNotOfferedAsAHint) {
  // 2^53 + 1 has no double of its own, so 9007199254740993.0 is not rewritten.
  EXPECT_EQ(parse({"--width", "9007199254740993.0e1"}).report.problems[0].hint, "how wide");
  EXPECT_EQ(parse({"--width", "9007199254740992.0"}).report.problems[0].hint,
            "an integer is written without a point or exponent: 9007199254740992");
}

TEST(OptionParse, JsonOfARunLeavesUnsetFieldsAlone) {
  ThingsConfig config;
  config.limit = 4.0;
  OptionSet set;
  set.add("Things", config);
  ParseReport report;
  set.load_json({{"limit", nullptr}, {"sizes", nlohmann::json::array()}, {"name", ""}}, report);
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(config.limit, 4.0);
  EXPECT_EQ(config.name, "plain");
  EXPECT_FALSE(set.at("sizes").given);
  set.load_json({{"width", -1}}, report);
  EXPECT_EQ(texts(report), Texts{"width -1 should be positive"});
}

}  // namespace
}  // namespace phx
