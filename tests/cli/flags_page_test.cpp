#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "phalanx/cli/not_in_this_build.h"
#include "phalanx/cli/pretrain_options.h"

namespace phx {
namespace {

TEST(FlagsPage, TheFlagsPageIsWhatTheProgramSays) {
  std::ifstream in(std::string(PHX_SOURCE_DIR) + "/docs/flags.md");
  std::ostringstream page;
  page << in.rdbuf();
  EXPECT_TRUE(page.str() == flags_markdown())
      << "docs/flags.md is out of date; write it anew with `phalanx flags > docs/flags.md`";
}

TEST(FlagsPage, HasARowForEveryOptionAndALineForEveryRule) {
  const std::string page = flags_markdown();
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);
  for (const Option& option : set.all())
    EXPECT_NE(page.find("| `" + option.flag() + "`"), std::string::npos) << option.flag();
  for (const Rule& rule : pretrain_rules(options))
    EXPECT_NE(page.find("- " + rule.text + "\n"), std::string::npos) << rule.text;
  for (const LackingOption& lacking : lacking_options())
    EXPECT_NE(page.find(std::string("`") + lacking.flag + "`"), std::string::npos);
}

TEST(FlagsPage, EveryRowHasFourCells) {
  std::istringstream lines(flags_markdown());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    int bars = 0;
    for (size_t i = 0; i < line.size(); ++i)
      if (line[i] == '|' && (i == 0 || line[i - 1] != '\\')) ++bars;
    EXPECT_EQ(bars, 5) << line;
  }
}

}  // namespace
}  // namespace phx
