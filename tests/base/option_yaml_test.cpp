#include <gtest/gtest.h>

#include "base/things_config.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

TEST(OptionYaml, YamlTakesBothSpellingsSectionsListsAndNulls) {
  ThingsConfig config;
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
  EXPECT_EQ(config.shape, Form::square);
  EXPECT_EQ(config.freq->list, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(report.implied.size(), 1u);
}

TEST(OptionYaml, YamlProblemsNameTheFileAndTheKey) {
  ThingsConfig config;
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
  ThingsConfig config;
  OptionSet set;
  set.add("Shape", config);  // a heading that is an option's name too
  set.add(kCatalogue);
  ParseReport report;
  set.parse_yaml(text, "x.yaml", report);
  return texts(report);
}

TEST(OptionYaml, YamlKeysGivenTwiceAreToldWithBothValues) {
  EXPECT_EQ(yaml_problems("width: 5\nwidth: 6\n"), Texts{"x.yaml: width is given twice: 5 and 6"});
  EXPECT_EQ(yaml_problems("one: {width: 5, rate: 0.1}\ntwo: {breadth: 6}\n"),
            Texts{"x.yaml: breadth is given twice: 5 and 6"});
  EXPECT_EQ(yaml_problems("old-size: 5\nold_size: [6, 7]\n"),
            Texts{"x.yaml: old_size is given twice: 5 and [6, 7]"});
}

TEST(OptionYaml, AYamlMapUnderAnOptionsNameIsRefusedUnlessItIsAHeading) {
  EXPECT_EQ(yaml_problems("width: {rate: 0.1}\n"),
            Texts{"x.yaml: width is an option, so it has a value and not a map"});
  EXPECT_EQ(yaml_problems("colour: {rate: 0.1}\n").size(), 1u);
  EXPECT_EQ(yaml_problems("shape: {rate: 0.1}\n"), Texts{});
}

TEST(OptionYaml, YamlListsHoldPlainValues) {
  EXPECT_EQ(yaml_problems("sizes: [1, [2, 3]]\n"),
            Texts{"x.yaml: sizes [1, [2, 3]] holds more than plain values"});
  EXPECT_EQ(yaml_problems("modules: [{mlp: 1}]\n").size(), 1u);
}

TEST(OptionYaml, AConfigFileIncludesNoOther) {
  EXPECT_EQ(yaml_problems("config: y.yaml\n"),
            Texts{"x.yaml: config y.yaml: a config file cannot include another"});
}

TEST(OptionYaml, AFileIsAMapAndAnEmptyOneSaysNothing) {
  EXPECT_EQ(yaml_problems(""), Texts{});
  EXPECT_EQ(yaml_problems("# nothing but a comment\n"), Texts{});
  EXPECT_EQ(yaml_problems("- width\n"),
            Texts{"x.yaml: the top level should be a map of option names to values"});
}

TEST(OptionYaml, AListForASingleValueIsJoinedByCommas) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  ParseReport report;
  set.parse_yaml("name: [127, 0]\nlimit: [5]\n", "x.yaml", report);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  EXPECT_EQ(config.name, "127,0");
  EXPECT_EQ(config.limit, 5.0);
}

TEST(OptionYaml, ACataloguedSwitchThatIsOffIsNotTaken) {
  for (const char* off : {"false", "False", "off", "no"}) {
    ThingsConfig config;
    OptionSet set;
    set.add("Things", config);
    set.add(kCatalogue);
    ParseReport report;
    set.parse_yaml(std::string("old-way: ") + off, "x.yaml", report);
    EXPECT_TRUE(report.implied.empty()) << off;
    EXPECT_FALSE(set.seen("old-way")) << off;
  }
  EXPECT_EQ(yaml_problems("colour: red\n"), Texts{"all is grey"});
  EXPECT_EQ(yaml_problems("colour: grey\n"), Texts{});
}

}  // namespace
}  // namespace phx
