#include "phalanx/optim/optimizer_config.h"

#include <gtest/gtest.h>

#include "phalanx/base/options.h"

namespace phx {
namespace {

std::vector<std::string> problems(std::vector<std::string> extra) {
  std::vector<std::string> args = {"--lr", "1e-3"};
  args.insert(args.end(), extra.begin(), extra.end());
  OptimizerConfig config;
  OptionSet options;
  options.add("Optimizer", config);
  ParseReport report = options.parse(args);
  options.check(optimizer_rules(), report);
  std::vector<std::string> texts;
  for (const Problem& problem : report.problems) texts.push_back(problem.text);
  return texts;
}

using Texts = std::vector<std::string>;

TEST(OptimizerConfig, DefaultsAreMegatrons) {
  const OptimizerConfig config;
  EXPECT_EQ(config.lr_decay_style, "linear");
  EXPECT_EQ(config.weight_decay, 0.01);
  EXPECT_EQ(config.adam_beta2, 0.999);
  EXPECT_EQ(config.clip_grad, 1.0);
  EXPECT_EQ(config.initial_loss_scale, 4294967296.0);
  EXPECT_TRUE(config.dynamic_loss_scale());
  EXPECT_EQ(problems({}), Texts{});
}

TEST(OptimizerConfig, TheFloorIsNotAboveThePeak) {
  EXPECT_EQ(problems({"--min-lr", "0.01"}), Texts{"--min-lr 0.01 is more than --lr 0.001"});
}

TEST(OptimizerConfig, TheSecondLearningRateHasItsFloorUnderItsPeak) {
  EXPECT_EQ(problems({"--decoupled-lr", "1e-4", "--decoupled-min-lr", "1e-5"}), Texts{});
  EXPECT_EQ(problems({"--decoupled-lr", "1e-4", "--decoupled-min-lr", "2e-4"}),
            Texts{"--decoupled-min-lr 0.0002 is more than --decoupled-lr 0.0001"});
  EXPECT_EQ(problems({"--decoupled-lr", "1e-4", "--min-lr", "2e-4"}),
            Texts{"--min-lr 0.0002 is more than --decoupled-lr 0.0001"});
  EXPECT_EQ(problems({"--decoupled-min-lr", "1e-5"}),
            Texts{"--decoupled-min-lr 1e-05 has no effect without --decoupled-lr"});
}

TEST(OptimizerConfig, TheSecondLearningRateIsOfTheTwoMatricesOfTheVocabulary) {
  EXPECT_TRUE(OptimizerConfig::is_decoupled("embedding.word_embeddings.weight"));
  EXPECT_TRUE(OptimizerConfig::is_decoupled("output_layer.weight"));
  EXPECT_FALSE(OptimizerConfig::is_decoupled("embedding.position_embeddings.weight"));
  EXPECT_FALSE(OptimizerConfig::is_decoupled("decoder.layers.0.mlp.linear_fc2.weight"));
}

TEST(OptimizerConfig, StatesOf16BitsAskForThePrecisionAwareOptimizer) {
  EXPECT_EQ(problems({"--exp-avg-dtype", "bf16"}),
            Texts{"--exp-avg-dtype bf16 requires --use-precision-aware-optimizer"});
  EXPECT_EQ(problems({"--use-precision-aware-optimizer", "--exp-avg-dtype", "bf16",
                      "--main-grads-dtype", "bf16"}),
            Texts{});
  EXPECT_EQ(problems({"--use-precision-aware-optimizer", "--exp-avg-sq-dtype", "fp16"}),
            Texts{"--exp-avg-sq-dtype fp16: it is too small for squares of gradients; bf16 has "
                  "fp32's range"});
}

TEST(OptimizerConfig, OffloadingAsksForThePrecisionAwareOptimizer) {
  EXPECT_EQ(problems({"--optimizer-cpu-offload"}).size(), 1u);
  EXPECT_EQ(problems({"--optimizer-cpu-offload", "--use-precision-aware-optimizer",
                      "--optimizer-offload-fraction", "0.5", "--overlap-cpu-optimizer-d2h-h2d"}),
            Texts{});
  EXPECT_EQ(problems({"--optimizer-offload-fraction", "0.5"}).size(), 1u);
}

TEST(OptimizerConfig, WarmUpHasOneLength) {
  EXPECT_EQ(problems({"--lr-warmup-fraction", "0.1", "--lr-warmup-iters", "10"}),
            Texts{"--lr-warmup-fraction 0.1 and --lr-warmup-iters 10 exclude each other: warm-up "
                  "has one length"});
  EXPECT_EQ(problems({"--lr-warmup-fraction", "0.1", "--lr-warmup-iters", "0"}), Texts{});
}

TEST(OptimizerConfig, WsdNeedsTheLengthOfItsFall) {
  EXPECT_EQ(problems({"--lr-decay-style", "WSD"}),
            Texts{"--lr-decay-style WSD requires the length of its final fall"});
  EXPECT_EQ(problems({"--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "5"}), Texts{});
  EXPECT_EQ(problems({"--lr-wsd-decay-iters", "5"}),
            Texts{"a WSD decay length has no effect with --lr-decay-style linear"});
}

TEST(OptimizerConfig, AChangingWeightDecayHasBothEnds) {
  EXPECT_EQ(problems({"--weight-decay-incr-style", "cosine", "--start-weight-decay", "0.1"}),
            Texts{"--weight-decay-incr-style cosine requires --end-weight-decay"});
  EXPECT_EQ(problems({"--end-weight-decay", "0.1"}).size(), 1u);
  EXPECT_EQ(problems({"--weight-decay-incr-style", "linear", "--start-weight-decay", "0",
                      "--end-weight-decay", "0.1"}),
            Texts{});
}

TEST(OptimizerConfig, OneOfTheTwoSchedulesWinsOnResume) {
  EXPECT_EQ(problems({"--override-opt-param-scheduler", "--use-checkpoint-lr-scheduler"}).size(),
            1u);
}

TEST(OptimizerConfig, OtherOptimizersAreRefused) {
  EXPECT_EQ(problems({"--optimizer", "muon"}),
            Texts{"--optimizer muon: this optimizer is not in this build yet"});
  EXPECT_EQ(problems({"--optimizer", "lion"}),
            Texts{"--optimizer lion: this optimizer is not in this build yet"});
  EXPECT_EQ(problems({"--optimizer", "sgd"}), Texts{});
  EXPECT_EQ(problems({"--optimizer", "adam"}), Texts{});
}

}  // namespace
}  // namespace phx
