#include "phalanx/base/options.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/frequency_pattern.h"

namespace phx {
namespace {

enum class Shape { round, square };
constexpr auto option_names(Shape) { return std::array{"round", "square"}; }

struct Config {
  int64_t width = 0;
  double rate = 0.5;
  bool fast = false;
  bool checks = true;
  bool add_bias = true;
  std::string name = "plain";
  Shape shape = Shape::round;
  std::optional<double> limit;
  std::vector<int64_t> sizes;
  std::vector<std::string> modules;
  std::optional<FrequencyPattern> freq;

  template <class Field>
  void each(Field&& field) {
    field("width", width, "how wide", Positive{}, Required{}, Alias{"breadth"});
    field("rate", rate, "how fast it goes", InRange{0.0, 1.0});
    field("fast", fast, "be fast");
    field("checks", checks, "no checks");
    field("add-bias", add_bias, "no bias", OffSwitch{"disable-bias"});
    field("name", name, "what it is called");
    field("shape", shape, "its form", Means{"use-squares", "square"},
          Refuses{{{"spiral", "spirals are not in this build"}}});
    field("limit", limit, "upper limit", NotNegative{}, DefaultIs{"no limit"}, Own{});
    field("sizes", sizes, "several sizes", Positive{});
    field("modules", modules, "several modules", OneOf{{"mlp", "attention"}});
    field("freq", freq, "which layers");
  }
};

const CatalogueEntry kCatalogue[] = {
    {"old-way", CatalogueEntry::Class::implied, {0, 0}, "there is one way"},
    {"old-size", CatalogueEntry::Class::implied, {1, 1}, "there is one size"},
    {"colour", CatalogueEntry::Class::refused, {1, 1}, "all is grey", "", "grey|gray"},
    {"ink", CatalogueEntry::Class::refused, {0, Arity::kMany}, "all is grey", "use a pencil", ""},
};

struct Parsed {
  Config config;
  ParseReport report;
};

Parsed parse(std::vector<std::string> args) {
  Parsed parsed;
  OptionSet set;
  set.add("Things", parsed.config);
  set.add(kCatalogue);
  parsed.report = set.parse(args);
  return parsed;
}

std::vector<std::string> texts(const ParseReport& report) {
  std::vector<std::string> result;
  for (const Problem& problem : report.problems) result.push_back(problem.text);
  return result;
}

using Texts = std::vector<std::string>;

TEST(Options, ValuesComeAfterASpaceOrAnEqualsSign) {
  const Parsed p = parse({"--width", "8", "--rate=0.25", "--name", "x y", "--shape=square"});
  EXPECT_TRUE(p.report.ok()) << format_problems(p.report.problems);
  EXPECT_EQ(p.config.width, 8);
  EXPECT_EQ(p.config.rate, 0.25);
  EXPECT_EQ(p.config.name, "x y");
  EXPECT_EQ(p.config.shape, Shape::square);
}

TEST(Options, ListsTakeValuesUpToTheNextFlag) {
  const Parsed p = parse({"--sizes", "1", "2", "3", "--width", "8", "--modules", "mlp"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(p.config.sizes, (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(p.config.modules, Texts{"mlp"});
}

TEST(Options, ABoolThatStartsTrueHasOffSwitches) {
  EXPECT_FALSE(parse({"--width", "1", "--no-checks"}).config.checks);
  EXPECT_FALSE(parse({"--width", "1", "--disable-checks"}).config.checks);
  EXPECT_FALSE(parse({"--width", "1", "--disable-bias"}).config.add_bias);
  EXPECT_TRUE(parse({"--width", "1"}).config.add_bias);
  // A field with a switch of its own has no made-up ones.
  EXPECT_EQ(parse({"--width", "1", "--no-add-bias"}).report.problems[0].kind, ProblemKind::unknown);
}

TEST(Options, SwitchesMayCarryAValue) {
  EXPECT_TRUE(parse({"--width", "1", "--fast"}).config.fast);
  EXPECT_FALSE(parse({"--width", "1", "--fast=false"}).config.fast);
  EXPECT_TRUE(parse({"--width", "1", "--disable-bias=false"}).config.add_bias);
  EXPECT_EQ(texts(parse({"--width", "1", "--fast=perhaps"}).report),
            Texts{"--fast perhaps is neither true nor false"});
}

TEST(Options, AliasesAndMeaningSwitchesAreTaken) {
  const Parsed p = parse({"--breadth", "3", "--use-squares"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(p.config.width, 3);
  EXPECT_EQ(p.config.shape, Shape::square);
}

TEST(Options, TheLastOfARepeatedFlagCounts) {
  EXPECT_EQ(parse({"--width", "1", "--width", "2"}).config.width, 2);
}

TEST(Options, ANegativeNumberIsAValueAndNotAFlag) {
  EXPECT_EQ(texts(parse({"--width", "-4"}).report), Texts{"--width -4 should be positive"});
  EXPECT_EQ(texts(parse({"--width", "4", "--rate", "-.5"}).report),
            Texts{"--rate -.5 should be between 0 and 1"});
}

TEST(Options, BadValuesSayWhatIsWrong) {
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

TEST(Options, AWrongChoiceNamesTheChoicesAndTheNearest) {
  const Parsed p = parse({"--width", "1", "--shape", "sqare", "--modules", "mlp", "mpl"});
  ASSERT_EQ(texts(p.report), (Texts{"--shape sqare is not one of round, square",
                                    "--modules mpl is not one of mlp, attention"}));
  EXPECT_EQ(p.report.problems[0].hint, "did you mean square?");
  EXPECT_EQ(p.report.problems[1].hint, "did you mean mlp?");
}

TEST(Options, AChoiceOfMegatronsThatIsMissingHereIsRefusedWithTheReason) {
  const Parsed p = parse({"--width", "1", "--shape", "spiral"});
  ASSERT_EQ(texts(p.report), Texts{"--shape spiral: spirals are not in this build"});
  EXPECT_EQ(p.report.problems[0].kind, ProblemKind::refused);
  EXPECT_EQ(p.report.problems[0].hint, "use one of round, square");
}

TEST(Options, AnUnknownFlagIsToldOnceWithTheNearest) {
  const Parsed p = parse({"--widht", "8", "9", "--width", "8"});
  ASSERT_EQ(p.report.problems.size(), 1u);
  EXPECT_EQ(p.report.problems[0].kind, ProblemKind::unknown);
  EXPECT_EQ(p.report.problems[0].text, "--widht is no flag of Phalanx or Megatron");
  EXPECT_EQ(p.report.problems[0].hint, "did you mean --width?");
  EXPECT_EQ(parse({"--width", "8", "--zzzzzzzzzzzz"}).report.problems[0].hint,
            "--help lists the flags");
}

TEST(Options, NamesAreNotAbbreviated) {
  EXPECT_EQ(parse({"--wid", "8"}).report.problems[0].kind, ProblemKind::unknown);
}

TEST(Options, AWordWithoutAFlagIsAProblem) {
  EXPECT_EQ(texts(parse({"--width", "8", "9"}).report), Texts{"\"9\" belongs to no flag"});
}

TEST(Options, AllProblemsAreToldAtOnce) {
  const Parsed p = parse({"--rate", "2", "--shape", "flat", "--nope", "--colour", "red"});
  EXPECT_EQ(p.report.problems.size(), 5u);  // and the missing --width
  EXPECT_EQ(p.report.problems.back().text, "--width is required: no default is right");
}

TEST(Options, AMissingFlagIsNotToldTwiceWhenItsValueIsBad) {
  EXPECT_EQ(parse({"--width", "wide"}).report.problems.size(), 1u);
}

TEST(Options, ImpliedFlagsAreTakenWithTheirValuesAndNamed) {
  const Parsed p = parse({"--old-way", "--old-size", "7", "--width", "8"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(format_implied(p.report),
            "taken without effect (docs/flags.md says why): --old-way, --old-size\n");
  EXPECT_EQ(format_implied(parse({"--width", "1"}).report), "");
}

TEST(Options, RefusedFlagsGiveTheReasonUnlessTheValueHoldsAnyway) {
  const Parsed p = parse({"--width", "8", "--colour", "red", "--ink", "a", "b"});
  EXPECT_EQ(format_problems(p.report.problems),
            "error: --colour: all is grey\n  hint: leave it out, or use --colour grey or gray\n"
            "error: --ink: all is grey\n  hint: use a pencil\n");
  EXPECT_TRUE(parse({"--width", "8", "--colour", "gray"}).report.ok());
}

TEST(Options, RefusalsWithOneReasonAreToldTogether) {
  const Problems problems = {{ProblemKind::refused, "--a", "no letters here", "use digits"},
                             {ProblemKind::rule, "--x", "--x 1 is odd", ""},
                             {ProblemKind::refused, "--b", "no letters here", "use digits"}};
  EXPECT_EQ(format_problems(problems),
            "error: --a, --b: no letters here\n  hint: use digits\nerror: --x 1 is odd\n");
}

TEST(Options, YamlTakesBothSpellingsSectionsListsAndNulls) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  set.add(kCatalogue);
  ParseReport report;
  set.parse_yaml(
      "model: {width: 16, disable_bias: true, limit: null}\n"
      "rate: 1e-3\nsizes: [4, 5]\nfast: true\nuse-squares: true\nold_way: true\nfreq: '[1]*2'\n",
      "x.yaml", report);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  EXPECT_EQ(config.width, 16);
  EXPECT_FALSE(config.add_bias);
  EXPECT_FALSE(config.limit.has_value());
  EXPECT_EQ(config.rate, 1e-3);
  EXPECT_EQ(config.sizes, (std::vector<int64_t>{4, 5}));
  EXPECT_TRUE(config.fast);
  EXPECT_EQ(config.shape, Shape::square);
  EXPECT_EQ(config.freq->list, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(report.implied.size(), 1u);
}

TEST(Options, YamlProblemsNameTheFileAndTheKey) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  ParseReport report;
  set.parse_yaml("width: wide\nwitdh: 4\n", "x.yaml", report);
  EXPECT_EQ(texts(report), (Texts{"x.yaml: width wide is not an integer",
                                  "x.yaml: witdh is no flag of this command"}));
  report = {};
  set.parse_yaml("width: [", "x.yaml", report);
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].kind, ProblemKind::file);
}

Texts yaml_problems(const std::string& text) {
  Config config;
  OptionSet set;
  set.add("Shape", config);  // a heading that is an option's name too
  set.add(kCatalogue);
  ParseReport report;
  set.parse_yaml(text, "x.yaml", report);
  return texts(report);
}

TEST(Options, YamlKeysGivenTwiceAreToldWithBothValues) {
  EXPECT_EQ(yaml_problems("width: 5\nwidth: 6\n"), Texts{"x.yaml: width is given twice: 5 and 6"});
  EXPECT_EQ(yaml_problems("one: {width: 5, rate: 0.1}\ntwo: {breadth: 6}\n"),
            Texts{"x.yaml: breadth is given twice: 5 and 6"});
  EXPECT_EQ(yaml_problems("old-size: 5\nold_size: [6, 7]\n"),
            Texts{"x.yaml: old_size is given twice: 5 and [6, 7]"});
}

TEST(Options, AYamlMapUnderAnOptionsNameIsRefusedUnlessItIsAHeading) {
  EXPECT_EQ(yaml_problems("width: {rate: 0.1}\n"),
            Texts{"x.yaml: width is an option, so it has a value and not a map"});
  EXPECT_EQ(yaml_problems("colour: {rate: 0.1}\n").size(), 1u);
  EXPECT_EQ(yaml_problems("shape: {rate: 0.1}\n"), Texts{});
}

TEST(Options, YamlListsHoldPlainValues) {
  EXPECT_EQ(yaml_problems("sizes: [1, [2, 3]]\n"),
            Texts{"x.yaml: sizes [1, [2, 3]] holds more than plain values"});
  EXPECT_EQ(yaml_problems("modules: [{mlp: 1}]\n").size(), 1u);
}

TEST(Options, AConfigFileIncludesNoOther) {
  EXPECT_EQ(yaml_problems("config: y.yaml\n"),
            Texts{"x.yaml: config y.yaml: a config file cannot include another"});
}

TEST(Options, OneDashMakesNoFlag) {
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

TEST(Options, AnIntegerWrittenAsAFloatIsNamedInTheHint) {
  EXPECT_EQ(parse({"--width", "1e3"}).report.problems[0].hint,
            "an integer is written without a point or exponent: 1000");
  EXPECT_EQ(parse({"--width", "8", "--sizes", "2", "4.0"}).report.problems[0].hint,
            "an integer is written without a point or exponent: 2 4");
  EXPECT_EQ(parse({"--width", "1.5"}).report.problems[0].hint, "how wide");
  EXPECT_EQ(parse({"--width", "-4"}).report.problems[0].hint, "how wide");
}

TEST(Options, FieldsOfOlderRunsThatAreCataloguedByNowAreSkipped) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  set.add(kCatalogue);
  ParseReport report;
  set.load_json({{"width", 7}, {"old_size", 3}, {"nope", 1}}, report);
  EXPECT_EQ(texts(report), Texts{"nope is no flag of Phalanx or Megatron"});
  EXPECT_EQ(config.width, 7);
}

TEST(Options, FlagsWinOverTheConfigFile) {
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

TEST(Options, AnEmptyConfigFileIsToldToBeEmpty) {
  const std::string file = testing::TempDir() + "phx_options_test_empty.yaml";
  std::ofstream{file};
  const Parsed empty = parse({"--width", "6", "--config", file});
  std::remove(file.c_str());
  EXPECT_EQ(texts(empty.report), Texts{"--config " + file + " is empty"});
  const Parsed folder = parse({"--width", "6", "--config", testing::TempDir()});
  EXPECT_EQ(texts(folder.report), Texts{"--config " + testing::TempDir() + " cannot be read"});
}

TEST(Options, JsonHoldsEveryFieldAndIsReadBack) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  set.parse(Texts{"--width", "8", "--rate", "0.1", "--no-checks", "--sizes", "1", "2", "--shape",
                  "square", "--freq", "[0]*3"});
  const nlohmann::json values = set.json();
  EXPECT_EQ(values["width"], 8);
  EXPECT_EQ(values["rate"], 0.1);
  EXPECT_EQ(values["checks"], false);
  EXPECT_EQ(values["limit"], nullptr);
  EXPECT_EQ(values["shape"], "square");

  Config copy;
  OptionSet copies;
  copies.add("Things", copy);
  ParseReport report;
  copies.load_json(nlohmann::json::parse(values.dump()), report);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  EXPECT_EQ(copies.json(), values);
}

TEST(Options, HelpListsFieldsByGroupWithDefaults) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  const std::string help = set.help("tool [flags]", "  tool --width 3");
  EXPECT_NE(help.find("usage: tool [flags]"), std::string::npos);
  EXPECT_NE(help.find("  tool --width 3"), std::string::npos);
  EXPECT_NE(help.find("\nThings\n"), std::string::npos);
  EXPECT_NE(help.find("how wide (required); also --breadth"), std::string::npos);
  EXPECT_NE(help.find("--shape {round,square}"), std::string::npos);
  EXPECT_NE(help.find("its form (default round); also --use-squares for square"),
            std::string::npos);
  EXPECT_NE(help.find("--disable-bias "), std::string::npos);
  EXPECT_NE(help.find("upper limit (default no limit) [own]"), std::string::npos);
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100u);
    begin = end + 1;
  }
}

TEST(Options, TheTableIsAlphabeticalWithDots) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  const std::string table = set.table();
  EXPECT_EQ(table.substr(0, table.find('\n')),
            "  add_bias ....................................... true");
  EXPECT_LT(table.find("  fast ."), table.find("  width ."));
}

TEST(Options, ASpellingIsDeclaredOnce) {
  Config first, second;
  OptionSet set;
  set.add("Things", first);
  EXPECT_THROW(set.add("Things", second), Error);
}

TEST(Options, NearestCountsASwapAsOneEdit) {
  const Texts names = {"abcd", "bacd", "xyz"};
  EXPECT_EQ(nearest("abdc", names), "abcd");
  EXPECT_EQ(nearest("qqqqqqq", names), "");
}

TEST(Options, NearestIsAtMostAThirdOfTheWordAway) {
  EXPECT_EQ(nearest("a", Texts{"b"}), "");
  EXPECT_EQ(nearest("xbc", Texts{"abc"}), "abc");
  EXPECT_EQ(nearest("xyc", Texts{"abc"}), "");
  EXPECT_EQ(nearest("abcxyz", Texts{"abcdef"}), "");
  EXPECT_EQ(nearest("abcdxy", Texts{"abcdef"}), "abcdef");
}

}  // namespace
}  // namespace phx
