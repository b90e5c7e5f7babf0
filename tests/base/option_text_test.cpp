#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/things_config.h"
#include "phalanx/base/options.h"

namespace phx {
namespace {

TEST(OptionText, ImpliedFlagsAreTakenWithTheirValuesAndNamed) {
  const Parsed p = parse({"--old-way", "--old-size", "7", "--width", "8"});
  EXPECT_TRUE(p.report.ok());
  EXPECT_EQ(format_implied(p.report),
            "taken without effect (docs/flags.md says why): --old-way, --old-size\n");
  EXPECT_EQ(format_implied(parse({"--width", "1"}).report), "");
}

TEST(OptionText, RefusalsWithOneReasonAreToldTogether) {
  const Problems problems = {{ProblemKind::refused, "--a", "no letters here", "use digits"},
                             {ProblemKind::rule, "--x", "--x 1 is odd", ""},
                             {ProblemKind::refused, "--b", "no letters here", "use digits"}};
  EXPECT_EQ(format_problems(problems),
            "error: --a, --b: no letters here\n  hint: use digits\nerror: --x 1 is odd\n");
}

TEST(OptionText, HelpListsFieldsByGroupWithDefaults) {
  ThingsConfig config;
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

TEST(OptionText, TheTableIsAlphabeticalWithDots) {
  ThingsConfig config;
  OptionSet set;
  set.add("Things", config);
  const std::string table = set.table();
  EXPECT_EQ(table.substr(0, table.find('\n')),
            "  add_bias ....................................... true");
  EXPECT_LT(table.find("  fast ."), table.find("  width ."));
}

TEST(OptionText, NearestCountsASwapAsOneEdit) {
  const Texts names = {"abcd", "bacd", "xyz"};
  EXPECT_EQ(nearest("abdc", names), "abcd");
  EXPECT_EQ(nearest("qqqqqqq", names), "");
}

TEST(OptionText, NearestIsAtMostAThirdOfTheWordAway) {
  EXPECT_EQ(nearest("a", Texts{"b"}), "");
  EXPECT_EQ(nearest("xbc", Texts{"abc"}), "abc");
  EXPECT_EQ(nearest("xyc", Texts{"abc"}), "");
  EXPECT_EQ(nearest("abcxyz", Texts{"abcdef"}), "");
  EXPECT_EQ(nearest("abcdxy", Texts{"abcdef"}), "abcdef");
}

TEST(OptionText, ValuesReadAsAUserWouldWriteThem) {
  EXPECT_EQ(value_text(nullptr), "none");
  EXPECT_EQ(value_text("two words"), "two words");
  EXPECT_EQ(value_text({1, 2.5, "x"}), "1 2.5 x");
  EXPECT_EQ(value_text(3.0), "3");
  EXPECT_EQ(value_text(0.1), "0.1");
  EXPECT_EQ(value_text(false), "false");
  EXPECT_EQ(value_text(nlohmann::json::array()), "");
}

TEST(OptionText, TheSameProblemFoundTwiceIsToldOnce) {
  const Problems problems = {{ProblemKind::rule, "--x", "--x 1 is odd", "use 2"},
                             {ProblemKind::rule, "--y", "--y 3 is odd", ""},
                             {ProblemKind::rule, "--x", "--x 1 is odd", "use 2"}};
  EXPECT_EQ(format_problems(problems), "error: --x 1 is odd\n  hint: use 2\nerror: --y 3 is odd\n");
}

TEST(OptionText, RefusalsWithOtherHintsStayApart) {
  const Problems problems = {{ProblemKind::refused, "--a", "no letters here", "use digits"},
                             {ProblemKind::refused, "--b", "no letters here", "use signs"}};
  EXPECT_EQ(format_problems(problems),
            "error: --a: no letters here\n  hint: use digits\n"
            "error: --b: no letters here\n  hint: use signs\n");
}

TEST(OptionText, AnEmptyTextIsShownAsNoneInTheTable) {
  ThingsConfig config;
  config.name = "";
  OptionSet set;
  set.add("Things", config);
  EXPECT_NE(set.table().find("  name ........................................... none\n"),
            std::string::npos);
}

}  // namespace
}  // namespace phx
