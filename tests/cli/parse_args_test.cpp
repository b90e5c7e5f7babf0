#include "phalanx/cli/parse_args.h"

#include <gtest/gtest.h>

#include "phalanx/cli/exit_codes.h"

namespace phx {
namespace {

struct Flags {
  int64_t count = 3;
  std::string name;
  template <class Field>
  void each(Field&& field) {
    field("count", count, "how many", Positive{});
    field("name", name, "of whom", Required{});
  }
};

struct Parsed {
  std::optional<int> code;
  Flags flags;
  std::string out, err;
};

Parsed parsed(const std::vector<std::string>& args) {
  Parsed result;
  OptionSet set;
  set.add("Test", result.flags);
  const Rule rules[] = {{"not seven", [](const OptionSet& options, Problems& problems) {
                           if (options.number("count") == 7)
                             problems.push_back({ProblemKind::rule, "--count", "seven", ""});
                         }}};
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  result.code = parse_args(set, rules, {"phalanx test", "Tests.", "phalanx test --name x"}, args);
  result.out = ::testing::internal::GetCapturedStdout();
  result.err = ::testing::internal::GetCapturedStderr();
  return result;
}

TEST(ParseArgs, GoodOnesGoOnSilently) {
  const Parsed good = parsed({"--name", "x", "--count=5"});
  EXPECT_FALSE(good.code);
  EXPECT_EQ(good.flags.count, 5);
  EXPECT_EQ(good.flags.name, "x");
  EXPECT_EQ(good.out + good.err, "");
}

TEST(ParseArgs, HelpHasUsageAboutAndExample) {
  const Parsed help = parsed({"--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_TRUE(help.out.starts_with("usage: phalanx test\n")) << help.out;
  for (const char* part : {"Tests.", "--count", "how many", "  phalanx test --name x"})
    EXPECT_NE(help.out.find(part), std::string::npos) << part;
}

TEST(ParseArgs, AllProblemsAreToldAtOnce) {
  const Parsed bad = parsed({"--count", "-1", "--bogus"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_EQ(bad.out, "");
  for (const char* part : {"--count -1 should be positive", "--bogus is no flag", "--name"})
    EXPECT_NE(bad.err.find(part), std::string::npos) << part << bad.err;
}

TEST(ParseArgs, RulesOfTheCommandAreChecked) {
  const Parsed bad = parsed({"--name", "x", "--count", "7"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_NE(bad.err.find("error: seven"), std::string::npos) << bad.err;
}

}  // namespace
}  // namespace phx
