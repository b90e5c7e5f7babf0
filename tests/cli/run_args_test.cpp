#include "phalanx/cli/run_args.h"

#include <gtest/gtest.h>

#include "cli/small_args.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Own {
  std::optional<int64_t> world_size;
  bool exact = false;
  template <class Field>
  void each(Field&& field) {
    field("world-size", world_size, "ranks");
    field("exact", exact, "all digits");
  }
};

TEST(RunArgs, FlagsOfTheCommandStandAmongThoseOfTheRun) {
  Own own;
  OptionSet set;
  set.add("Own", own);
  const Texts args = {"--lr", "1e-3", "--world-size", "8", "--exact", "--bf16", "--world-size=9"};
  const SplitArgs split = split_args(set, args);
  EXPECT_EQ(split.own, (Texts{"--world-size", "8", "--exact", "--world-size=9"}));
  EXPECT_EQ(split.pretrain, (Texts{"--lr", "1e-3", "--bf16"}));
  EXPECT_FALSE(split.help);
  EXPECT_TRUE(split_args(set, Texts{"-h"}).help);
}

TEST(RunArgs, WhatAShapeDoesNotDependOnMayBeLeftOut) {
  Texts args = small({});
  std::erase(args, "--lr");
  std::erase(args, "1e-3");
  std::erase(args, "--mock-data");
  EXPECT_FALSE(parse_pretrain(args).report.ok());
  const ParseResult run = parse_run(args, 1, standard_catalogue());
  EXPECT_TRUE(run.report.ok()) << format_problems(run.report.problems);
  EXPECT_TRUE(run.options.data.mock_data);
  std::erase(args, "--hidden-size");
  std::erase(args, "32");
  EXPECT_FALSE(parse_run(args, 1, standard_catalogue()).report.ok()) << "shapes do depend on this";
}

TEST(RunArgs, FlagsWithoutMeaningAreNamedByCommand) {
  const Texts args = small({"--train-iters", "1", "--save", "out", "--bf16", "--local-ranks", "1"});
  const ParseReport report = parse_pretrain(args).report;
  EXPECT_EQ(meaningless_flags(RunCommand::plan, args, report, false),
            "without meaning for phalanx plan: --save, --lr, --train-iters\n");
  EXPECT_EQ(meaningless_flags(RunCommand::verify, args, report, true),
            "without meaning for phalanx verify: --save, --bf16, --local-ranks\n");
  EXPECT_EQ(meaningless_flags(RunCommand::verify_resume, args, report, false),
            "without meaning for phalanx verify: --save\n");
  const Texts saves = small({"--train-iters", "1", "--save-verify", "--save-into-used-folder"});
  EXPECT_EQ(meaningless_flags(RunCommand::verify, saves, {}, false),
            "without meaning for phalanx verify: --save-verify, --save-into-used-folder\n");
  const Texts none = {"--num-layers", "2"};
  EXPECT_EQ(meaningless_flags(RunCommand::plan, none, {}, false), "");
}

}  // namespace
}  // namespace phx
