#include "phalanx/base/options.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/things_config.h"
#include "phalanx/base/error.h"

namespace phx {
namespace {

TEST(Options, ABoolThatStartsTrueHasOffSwitches) {
  EXPECT_FALSE(parse({"--width", "1", "--no-checks"}).config.checks);
  EXPECT_FALSE(parse({"--width", "1", "--disable-checks"}).config.checks);
  EXPECT_FALSE(parse({"--width", "1", "--disable-bias"}).config.add_bias);
  EXPECT_TRUE(parse({"--width", "1"}).config.add_bias);
  // A field with a switch of its own has no made-up ones.
  EXPECT_EQ(parse({"--width", "1", "--no-add-bias"}).report.problems[0].kind, ProblemKind::unknown);
}

TEST(Options, JsonHoldsEveryFieldAndIsReadBack) {
  ThingsConfig config;
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

  ThingsConfig copy;
  OptionSet copies;
  copies.add("Things", copy);
  ParseReport report;
  copies.load_json(nlohmann::json::parse(values.dump()), report);
  EXPECT_TRUE(report.ok()) << format_problems(report.problems);
  EXPECT_EQ(copies.json(), values);
}

TEST(Options, ASpellingIsDeclaredOnce) {
  ThingsConfig first, second;
  OptionSet set;
  set.add("Things", first);
  EXPECT_THROW(set.add("Things", second), Error);
}

struct RuleConfig {
  std::string rule = "adam";
  template <class Field>
  void each(Field&& field) {
    field("rule", rule, "which", Refuses{{{"lion", "not here"}, {"muon", "not here"}}});
  }
};

TEST(Options, ChoicesOfACatalogueAreCheckedAndNoLongerRefused) {
  RuleConfig config;
  OptionSet set;
  set.add("Run", config);
  set.set_choices("rule", {"adam", "lion"});
  const auto problem = [&](const char* value) {
    const std::vector<std::string> args = {"--rule", value};
    const ParseReport report = set.parse(args);
    return report.ok() ? "" : report.problems[0].text;
  };
  EXPECT_EQ(problem("lion"), "");
  EXPECT_EQ(config.rule, "lion");
  EXPECT_NE(problem("muon").find("not here"), std::string::npos);
  EXPECT_NE(problem("sgd").find("is not one of adam, lion"), std::string::npos);
}

TEST(Options, ActiveMeansAwayFromTheDefaultOrGiven) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  for (const char* name : {"fast", "checks", "rate", "shape", "limit", "sizes"}) {
    EXPECT_FALSE(set.active(name)) << name;
  }
  set.parse(Texts{"--width", "8", "--no-checks", "--rate", "0.5", "--sizes", "1", "--limit", "0"});
  EXPECT_TRUE(set.active("checks"));  // a switch that starts true is active when it is off
  EXPECT_TRUE(set.active("rate"));    // given, though it is the default's value
  EXPECT_TRUE(set.active("limit"));
  EXPECT_TRUE(set.active("sizes"));
  EXPECT_FALSE(set.active("fast"));
  EXPECT_FALSE(set.active("shape"));
}

TEST(Options, ANumberThatIsMissingOrWasNotTakenIsNone) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  EXPECT_EQ(set.number("rate"), 0.5);
  EXPECT_EQ(set.number("width"), std::nullopt);  // required, and not there
  EXPECT_EQ(set.number("limit"), std::nullopt);
  EXPECT_EQ(set.number("name"), std::nullopt);
  set.parse(Texts{"--width", "8", "--rate", "7"});
  EXPECT_EQ(set.number("width"), 8.0);
  EXPECT_EQ(set.number("rate"), std::nullopt);
}

}  // namespace
}  // namespace phx
