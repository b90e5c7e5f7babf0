#include "phalanx/transformer/moe_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/options.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// All problems of a model with these flags beside the usual ones, one a line with its hint.
std::string problems_of(std::vector<std::string> flags) {
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  std::vector<std::string> args = {"--num-layers",
                                   "4",
                                   "--hidden-size",
                                   "32",
                                   "--num-attention-heads",
                                   "4",
                                   "--seq-length",
                                   "8",
                                   "--max-position-embeddings",
                                   "8",
                                   "--vocab-size",
                                   "32",
                                   "--disable-bias-linear"};
  args.insert(args.end(), flags.begin(), flags.end());
  ParseReport report = options.parse(args);
  options.check(transformer_rules(config), report);
  std::string text;
  for (const Problem& problem : report.problems) text += problem.text + " | " + problem.hint + "\n";
  return text;
}

TEST(MoeConfig, ModelsWithExpertsAreTaken) {
  EXPECT_EQ(problems_of({"--num-experts", "8"}), "");
  EXPECT_EQ(problems_of({"--num-experts", "8", "--moe-router-topk", "4",
                         "--moe-router-score-function", "sigmoid", "--moe-router-num-groups", "4",
                         "--moe-router-group-topk", "2", "--moe-layer-freq", "([0]*1+[1]*3)",
                         "--moe-aux-loss-coeff", "1e-2", "--moe-z-loss-coeff", "1e-3"}),
            "");
}

TEST(MoeConfig, SeveralKindsOfBalancingHaveACoefficientEach) {
  EXPECT_EQ(problems_of({"--num-experts", "8", "--moe-router-load-balancing-type", "aux_loss",
                         "global_aux_loss", "--moe-aux-loss-coeff", "1e-2", "1e-3"}),
            "");
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-router-load-balancing-type", "aux_loss",
                           "global_aux_loss", "--moe-aux-loss-coeff", "1e-2"}),
              HasSubstr("--moe-aux-loss-coeff has 1 values for 2 kinds of balancing"));
}

TEST(MoeConfig, ABiasOfExpertsNeedsSigmoidScores) {
  EXPECT_EQ(problems_of({"--num-experts", "8", "--moe-router-score-function", "sigmoid",
                         "--moe-router-enable-expert-bias", "--moe-router-dtype", "fp32"}),
            "");
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-router-enable-expert-bias"}),
              HasSubstr("add --moe-router-score-function sigmoid"));
  EXPECT_THAT(problems_of({"--moe-router-enable-expert-bias"}),
              HasSubstr("no effect without --num-experts"));
}

TEST(MoeConfig, WrongSettingsAreRefusedWithWhatWorks) {
  EXPECT_THAT(problems_of({"--moe-layer-freq", "2"}), HasSubstr("no effect without --num-experts"));
  EXPECT_THAT(problems_of({"--num-experts", "4", "--moe-router-topk", "6"}),
              HasSubstr("--moe-router-topk 6 is more than --num-experts 4"));
  EXPECT_THAT(problems_of({"--num-experts", "4", "--moe-router-topk", "1"}),
              HasSubstr("add --moe-router-pre-softmax"));
  EXPECT_THAT(problems_of({"--num-experts", "6", "--moe-router-num-groups", "4"}),
              HasSubstr("these do: 1, 2, 3, 6"));
  EXPECT_THAT(
      problems_of({"--num-experts", "8", "--moe-router-num-groups", "4"}),
      AllOf(HasSubstr("requires --moe-router-group-topk"), HasSubstr("these would do: 1, 2, 4\n")));
  EXPECT_THAT(
      problems_of({"--num-experts", "8", "--moe-router-topk", "3", "--moe-router-num-groups", "4",
                   "--moe-router-group-topk", "2"}),
      AllOf(HasSubstr("cannot give --moe-router-topk 3"), HasSubstr("these would do: 3, 4\n")));
  // Two experts in a group: two groups cannot give six, and four are not more than all.
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-router-topk", "6",
                           "--moe-router-num-groups", "4", "--moe-router-group-topk", "2"}),
              HasSubstr("these would do: 3, 4\n"));
  const auto of_groups = [](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"--num-experts", "8", "--moe-router-topk", "3", "--moe-router-num-groups", "4"});
    return problems_of(more);
  };
  EXPECT_EQ(of_groups({"--moe-router-group-topk", "2", "--moe-router-group-best", "1"}), "");
  EXPECT_THAT(of_groups({"--moe-router-group-topk", "2", "--moe-router-group-best", "3"}),
              HasSubstr("--moe-router-group-best 3 is more than the 2 experts of a group"));
  EXPECT_THAT(of_groups({"--moe-router-group-topk", "1", "--moe-router-group-best", "1"}),
              AllOf(HasSubstr("cannot give --moe-router-topk 3 experts"), HasSubstr("2 to 4")));
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-router-group-best", "1"}),
              HasSubstr("no effect without --moe-router-num-groups"));
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-layer-freq", "[1,0]"}),
              HasSubstr("has 2 entries, but --num-layers is 4"));
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-expert-rank-capacity-factor", "2"}),
              HasSubstr("add --moe-token-dispatcher-type alltoall"));
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-shared-expert-gate"}),
              HasSubstr("there is no shared expert to gate"));
  EXPECT_THAT(problems_of({"--num-experts", "8", "--moe-aux-loss-coeff", "1e-2", "1e-3"}),
              HasSubstr("has 2 values for 1 kinds of balancing"));
}

TEST(MoeConfig, BiasesAreRefused) {
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  ParseReport report = options.parse(std::vector<std::string>{"--num-experts", "4"});
  options.check(moe_rules(), report);
  ASSERT_EQ(report.problems.size(), 1u + 5u) << "and the five required flags";
  EXPECT_THAT(report.problems.back().text, HasSubstr("--disable-bias-linear"));
}

TEST(MoeConfig, EveryNthLayerBeginsWithTheFirst) {
  MoeConfig moe;
  EXPECT_FALSE(moe.has_experts(0));
  moe.num_experts = 4;
  EXPECT_TRUE(moe.has_experts(0) && moe.has_experts(1));
  moe.moe_layer_freq = FrequencyPattern::every_nth(2);
  EXPECT_TRUE(moe.has_experts(0) && !moe.has_experts(1) && moe.has_experts(2));
  moe.moe_layer_freq = FrequencyPattern::of({0, 1, 1});
  EXPECT_TRUE(!moe.has_experts(0) && moe.has_experts(1));
}

TEST(MoeConfig, EachKindOfBalancingHasItsOwnCoefficient) {
  MoeConfig moe;
  moe.moe_router_load_balancing_type = {"seq_aux_loss", "aux_loss"};
  moe.moe_aux_loss_coeff = {0.5, 0.25};
  EXPECT_EQ(moe.coefficient("aux_loss"), 0.25);
  EXPECT_EQ(moe.coefficient("seq_aux_loss"), 0.5);
  EXPECT_EQ(moe.coefficient("global_aux_loss"), 0.0);
}

}  // namespace
}  // namespace phx
