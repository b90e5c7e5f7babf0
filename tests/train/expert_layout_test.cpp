// Layouts of models with experts that cannot be trained, and what is said of them.
#include <gtest/gtest.h>

#include "phalanx/train/layout.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using Lines = std::vector<std::string>;

// Experts of width 12, samples for any number of ranks.
RunConfig expert_run() {
  RunConfig config = tiny_run();
  config.model.moe.num_experts = 8;
  config.model.moe.moe_ffn_hidden_size = 12;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 48;
  return config;
}

Lines texts(const RunConfig& config, int64_t world) {
  Lines lines;
  for (const Problem& problem : layout_problems(config.layout(), world))
    lines.push_back(problem.text + " | " + problem.hint);
  return lines;
}

void cut(RunConfig& config, int64_t ep, std::optional<int64_t> etp = {}) {
  config.parallel.expert_model_parallel_size = ep;
  config.parallel.expert_tensor_parallel_size = etp;
}

void tensor_parallel(RunConfig& config, int64_t tp) {
  config.parallel.tensor_model_parallel_size = tp;
  config.parallel.sequence_parallel = true;
}

TEST(ExpertLayout, AModelWithoutExpertsHasNoneToCut) {
  RunConfig config = expert_run();
  config.model.moe = {};
  cut(config, 2);
  EXPECT_EQ(texts(config, 4), Lines{"experts are to be cut over 2 ranks, but the model has none | "
                                    "add --num-experts, or leave the flag out"});
  cut(config, 1, 4);
  EXPECT_EQ(texts(config, 4), Lines{"experts are to be cut over 4 ranks, but the model has none | "
                                    "add --num-experts, or leave the flag out"});
  cut(config, 1, 1);
  EXPECT_EQ(texts(config, 4), Lines{});
}

TEST(ExpertLayout, TensorParallelRanksRouteTokensOfTheirOwn) {
  RunConfig config = expert_run();
  tensor_parallel(config, 2);
  EXPECT_EQ(texts(config, 2), Lines{});
  config.parallel.sequence_parallel = false;
  EXPECT_EQ(texts(config, 2),
            Lines{"--num-experts with --tensor-model-parallel-size 2 needs --sequence-parallel: a "
                  "token is routed by one rank | add --sequence-parallel"});
}

TEST(ExpertLayout, EveryRankHasAsManyExperts) {
  RunConfig config = expert_run();
  cut(config, 3);
  EXPECT_EQ(texts(config, 3), Lines{"--expert-model-parallel-size 3 does not divide --num-experts "
                                    "8 | 2 and 4 are the nearest that do"});
  cut(config, 16);
  EXPECT_EQ(texts(config, 16), Lines{"--expert-model-parallel-size 16 does not divide "
                                     "--num-experts 8 | 8 is the nearest that does"});
}

TEST(ExpertLayout, AnExpertIsCutEvenly) {
  RunConfig config = expert_run();
  cut(config, 1, 8);
  EXPECT_EQ(texts(config, 8), Lines{"an expert of width 12 cannot be cut over 8 ranks | 6 and 12 "
                                    "are the nearest that do"});
  tensor_parallel(config, 2);
  cut(config, 1);  // as dense layers are
  EXPECT_EQ(texts(config, 8), Lines{});
  config.model.moe.moe_ffn_hidden_size = 13;
  EXPECT_EQ(texts(config, 8), Lines{"an expert of width 13 cannot be cut over 2 ranks | 1 and 13 "
                                    "are the nearest that do"});
}

TEST(ExpertLayout, ExpertsAreOnTheRanksOfAStage) {
  RunConfig config = expert_run();
  cut(config, 4, 2);
  EXPECT_EQ(texts(config, 8), Lines{});
  EXPECT_EQ(texts(config, 12), Lines{"a pipeline stage has 12 ranks, which is not a multiple of EP "
                                     "4 x ETP 2 = 8 | with ETP 2 EP should divide 6: 2 is the "
                                     "nearest that does"});
  cut(config, 2, 4);
  EXPECT_EQ(texts(config, 6), Lines{"a pipeline stage has 6 ranks, which is not a multiple of EP 2 "
                                    "x ETP 4 = 8 | ETP should divide 6: 3 and 6 are the nearest "
                                    "that do"});
  // Whatever it says works.
  cut(config, 2, 3);
  EXPECT_EQ(texts(config, 6), Lines{});
  cut(config, 1, 6);
  EXPECT_EQ(texts(config, 6), Lines{});
}

TEST(ExpertLayout, InTheOtherOrderOfRanksExpertsHaveTheDataRanksOfDenseLayers) {
  RunConfig config = expert_run();
  config.parallel.use_tp_pp_dp_mapping = true;
  tensor_parallel(config, 2);
  cut(config, 2, 1);
  EXPECT_EQ(texts(config, 4), Lines{});
  cut(config, 1, 1);
  EXPECT_EQ(texts(config, 4),
            Lines{"--use-tp-pp-dp-mapping needs as many data-parallel ranks for experts as for "
                  "dense layers | leave it out, or choose EP x ETP = TP x CP"});
}

}  // namespace
}  // namespace phx
