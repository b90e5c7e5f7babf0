#include "phalanx/base/option_rules.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

struct Config {
  int64_t batch = 0;
  int64_t unit = 0;
  std::optional<int64_t> limit;
  bool red = false;
  bool blue = false;
  bool safe = true;
  std::string save;

  template <class Field>
  void each(Field&& field) {
    field("batch", batch, "");
    field("unit", unit, "");
    field("limit", limit, "");
    field("red", red, "");
    field("blue", blue, "");
    field("safe", safe, "");
    field("save", save, "");
  }
};

Problems check(const Rule& rule, std::vector<std::string> args) {
  Config config;
  OptionSet set;
  set.add("Things", config);
  ParseReport report = set.parse(args);
  set.check(std::vector<Rule>{rule}, report);
  return report.problems;
}

TEST(OptionRules, ARuleOnFieldsRunsWhereAllOfThemHaveValues) {
  int calls = 0;
  const Rule rule =
      on_fields("always wrong", {"batch", "limit"}, [&](const OptionSet&, Problems&) { ++calls; });
  EXPECT_EQ(rule.text, "always wrong");
  check(rule, {"--batch", "1", "--limit", "2"});
  check(rule, {"--batch", "1"});
  EXPECT_EQ(calls, 2) << "an optional field without a value is known to be empty";
  check(rule, {"--batch", "x", "--limit", "2"});
  check(rule, {"--batch", "1", "--limit", "x"});
  EXPECT_EQ(calls, 2) << "not understood";
  check(rule, {"--batch", "1", "--unit", "x"});
  EXPECT_EQ(calls, 3) << "of another field";
}

TEST(OptionRules, DividesOffersTheNearestMultiples) {
  const Rule rule = divides("unit", "batch");
  EXPECT_EQ(rule.text, "--batch is a multiple of --unit");
  const Problems problems = check(rule, {"--batch", "1000", "--unit", "128"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--batch 1000 is not a multiple of --unit 128");
  EXPECT_EQ(problems[0].hint, "896 and 1024 are the nearest that are");
  EXPECT_EQ(check(rule, {"--batch", "3", "--unit", "8"})[0].hint, "8 is the nearest that is");
  EXPECT_TRUE(check(rule, {"--batch", "256", "--unit", "128"}).empty());
  EXPECT_TRUE(check(rule, {"--batch", "256"}).empty());
}

TEST(OptionRules, AtMostSaysBothWaysOut) {
  const Rule rule = at_most("batch", "limit");
  const Problems problems = check(rule, {"--batch", "9", "--limit", "8"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--batch 9 is more than --limit 8");
  EXPECT_EQ(problems[0].hint, "lower --batch to 8, or raise --limit to 9");
  EXPECT_TRUE(check(rule, {"--batch", "9"}).empty());
}

TEST(OptionRules, BelowIsStrict) {
  const Rule rule = below("batch", "limit");
  EXPECT_EQ(rule.text, "--batch is below --limit");
  const Problems problems = check(rule, {"--batch", "8", "--limit", "8"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--batch 8 is not below --limit 8");
  EXPECT_EQ(problems[0].hint, "lower --batch below 8, or raise --limit above 8");
  EXPECT_TRUE(check(rule, {"--batch", "7", "--limit", "8"}).empty());
}

TEST(OptionRules, RequiresLooksAtActiveOptionsOnly) {
  const Rule rule = requires_option("save", "limit", "it says how often");
  const Problems problems = check(rule, {"--save", "x"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--save x requires --limit: it says how often");
  EXPECT_TRUE(check(rule, {}).empty());
  EXPECT_TRUE(check(rule, {"--save", "x", "--limit", "3"}).empty());
}

TEST(OptionRules, AtMostOneListsThoseThatClash) {
  const Rule rule = at_most_one({"red", "blue", "safe"}, "one colour");
  EXPECT_TRUE(check(rule, {"--red"}).empty());
  const Problems problems = check(rule, {"--red", "--blue", "--no-safe"});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text, "--red, --blue and --no-safe exclude each other: one colour");
}

TEST(OptionRules, ExactlyOneAsksForOne) {
  const Rule rule = exactly_one({"red", "blue"}, "one colour");
  EXPECT_EQ(check(rule, {})[0].text, "one of --red and --blue is required: one colour");
  EXPECT_TRUE(check(rule, {"--blue"}).empty());
  EXPECT_EQ(check(rule, {"--blue", "--red"}).size(), 1u);
}

TEST(OptionRules, AValueThatWasNotTakenIsNoSecondProblem) {
  EXPECT_EQ(check(exactly_one({"limit", "red"}, "a length"), {"--limit", "abc"}).size(), 1u);
  EXPECT_EQ(check(at_most("batch", "limit"), {"--batch", "9", "--limit", "abc"}).size(), 1u);
}

}  // namespace
}  // namespace phx
