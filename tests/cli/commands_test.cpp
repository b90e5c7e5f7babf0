#include "phalanx/cli/commands.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/captured.h"
#include "phalanx/cli/build_info.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/pretrain_options.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::Outcome;
using testing::run;

TEST(Phalanx, FlagsHasHelpAndTakesNoFlags) {
  const Outcome help = run({"flags", "--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_TRUE(help.out.starts_with("usage: phalanx flags\n")) << help.out;
  const Outcome bad = run({"flags", "--bogus"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_TRUE(bad.err.starts_with("error: --bogus is no flag of this command\n")) << bad.err;
  EXPECT_EQ(bad.out, "");
}

TEST(Phalanx, BadUsageExitsWithTwoAndHints) {
  const Outcome bad = run({"pretrain", "--hiden-size", "3"});
  EXPECT_EQ(bad.code, kExitUsage);
  EXPECT_NE(bad.err.find("error: --hiden-size is no flag of Phalanx or Megatron\n"
                         "  hint: did you mean --hidden-size?\n"),
            std::string::npos);
  const Outcome command = run({"pretrian"});
  EXPECT_EQ(command.code, kExitUsage);
  EXPECT_NE(command.err.find("did you mean pretrain?"), std::string::npos);
  EXPECT_EQ(run({}).code, kExitUsage);
}

TEST(Phalanx, HelpAndVersionSucceed) {
  EXPECT_EQ(run({"--help"}).code, kExitDone);
  EXPECT_NE(run({"--help"}).out.find("pretrain"), std::string::npos);
  EXPECT_TRUE(run({"--version"}).out.starts_with("phalanx 0."));
  const Outcome help = run({"pretrain", "--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_EQ(help.out, pretrain_help());
}

TEST(Phalanx, EveryCommandIsListedOnceAndHasHelp) {
  const std::string usage = run({"--help"}).out;
  std::set<std::string> names;
  for (const Command& command : commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    EXPECT_NE(usage.find("\n  " + std::string(command.name) + " "), std::string::npos);
    EXPECT_NE(usage.find(command.summary), std::string::npos) << command.name;
    const Outcome help = run({command.name, "--help"});
    EXPECT_EQ(help.code, kExitDone) << command.name << help.err;
    EXPECT_NE(help.out.find("example"), std::string::npos) << command.name;
  }
}

TEST(Phalanx, WhatFailsIsToldWithoutTheMarksOfLibraries) {
  const TempFolder folder;
  const Outcome outcome = run({"inspect", "data", (folder / "none").string()});
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
  EXPECT_EQ(outcome.err.find("[json.exception"), std::string::npos);
  EXPECT_EQ(outcome.out, "");
}

}  // namespace
}  // namespace phx
