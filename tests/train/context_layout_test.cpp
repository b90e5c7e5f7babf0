#include "phalanx/train/context_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct ContextRun {
  TransformerConfig model;
  ParallelConfig ranks;
  ContextRun() {
    model.seq_length = 64;
    model.num_layers = 4;
    model.num_attention_heads = 8;
    ranks.context_parallel_size = 4;
  }
  std::vector<std::string> problems() const {
    std::vector<std::string> lines;
    for (const Problem& problem : context_layout_problems(model, ranks))
      lines.push_back(problem.text + " | " + problem.hint);
    return lines;
  }
};

TEST(ContextLayout, EveryRankHasTwoChunksOfASequence) {
  ContextRun run;
  EXPECT_THAT(run.problems(), IsEmpty());
  run.model.seq_length = 60;
  EXPECT_THAT(
      run.problems(),
      ElementsAre("--seq-length 60 is not a multiple of 8: --context-parallel-size 4 cuts a "
                  "sequence into 8 chunks | 56 and 64 are the nearest that are"));
  run.ranks.context_parallel_size = 1;
  EXPECT_THAT(run.problems(), IsEmpty());
}

TEST(ContextLayout, TensorParallelRanksMayCutTheTwoChunksOnceMore) {
  ContextRun run;
  run.ranks.tensor_model_parallel_size = 8;
  EXPECT_THAT(run.problems(), IsEmpty());
  run.ranks.sequence_parallel = true;
  run.model.seq_length = 72;
  EXPECT_THAT(
      run.problems(),
      ElementsAre("--seq-length 72 is not a multiple of 32: --context-parallel-size 4 cuts a "
                  "sequence into 8 chunks, and --sequence-parallel a rank's two chunks over "
                  "TP 8 | 64 and 96 are the nearest that are"));
}

TEST(ContextLayout, HeadsThatAreExchangedAreAMultipleOfTheRanks) {
  ContextRun run;
  run.ranks.cp_comm_type = {"a2a"};
  EXPECT_THAT(run.problems(), IsEmpty());
  run.model.group_query_attention = true;
  run.model.num_query_groups = 2;
  EXPECT_THAT(
      run.problems(),
      ElementsAre(
          "--cp-comm-type a2a exchanges heads among 4 ranks, but a rank has 8 query heads and "
          "2 key heads, and each of these should be a multiple of 4 | ranks that do: 1, 2; or "
          "--cp-comm-type p2p"));
  run.ranks.cp_comm_type = {"a2a+p2p"};
  run.ranks.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_THAT(run.problems(), IsEmpty());
  run.ranks.tensor_model_parallel_size = 2;  // one key head a rank
  EXPECT_EQ(run.problems().size(), 1u);
}

TEST(ContextLayout, AWayIsGivenForAllLayersOrForEach) {
  ContextRun run;
  run.ranks.cp_comm_type = {"p2p", "a2a", "p2p", "a2a"};
  EXPECT_THAT(run.problems(), IsEmpty());
  run.ranks.cp_comm_type.pop_back();
  EXPECT_THAT(run.problems(),
              ElementsAre("--cp-comm-type has 3 values, but there are 4 layers | give one for all "
                          "layers, or 4"));
}

TEST(ContextLayout, TwoLevelsNeedTwoSizesThatMakeAllRanks) {
  ContextRun run;
  run.ranks.cp_comm_type = {"a2a+p2p"};
  const std::string hint =
      " | two numbers whose product is 4, e.g. --hierarchical-context-parallel-sizes 2 2";
  EXPECT_THAT(
      run.problems(),
      ElementsAre("--cp-comm-type a2a+p2p needs --hierarchical-context-parallel-sizes: how "
                  "many neighbours exchange heads, and over how many of those keys go round" +
                  hint));
  run.ranks.hierarchical_context_parallel_sizes = {2, 4};
  EXPECT_THAT(run.problems(), ElementsAre("--hierarchical-context-parallel-sizes 2 4 does not make "
                                          "--context-parallel-size 4" +
                                          hint));
}

TEST(ContextLayout, NeighboursExchangeHeadsWhereALayerSaysSo) {
  ContextRun run;
  run.ranks.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(neighbours_that_exchange_heads(run.ranks), 1) << "no layer has a2a+p2p";
  run.ranks.cp_comm_type = {"p2p", "a2a+p2p", "p2p", "p2p"};
  EXPECT_EQ(neighbours_that_exchange_heads(run.ranks), 2);
  run.ranks.context_parallel_size = 1;
  EXPECT_EQ(neighbours_that_exchange_heads(run.ranks), 1) << "idle flags";
}

TEST(ContextLayout, TheWayThatDoesNotFitTheHeadsIsNamed) {
  ContextRun run;
  run.model.num_attention_heads = 6;
  run.ranks.cp_comm_type = {"a2a+p2p"};
  run.ranks.hierarchical_context_parallel_sizes = {4, 1};
  EXPECT_THAT(
      run.problems(),
      ElementsAre("--cp-comm-type a2a+p2p exchanges heads among 4 ranks, but a rank has 6 query "
                  "heads and 6 key heads, and each of these should be a multiple of 4 | ranks that "
                  "do: 1, 2, 3, 6 (the first of --hierarchical-context-parallel-sizes)"));
}

TEST(ContextLayout, GpusTakePackedRowsAndDropoutOnlyWithWholeHeads) {
  ContextRun run;
  run.model.attention_dropout = 0.1;
  EXPECT_EQ(context_device_problems(run.model, run.ranks, true).size(), 2u);
  run.ranks.cp_comm_type = {"a2a+p2p"};
  run.ranks.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(context_device_problems(run.model, run.ranks, true).size(), 2u);
  run.ranks.hierarchical_context_parallel_sizes = {4, 1};
  EXPECT_THAT(context_device_problems(run.model, run.ranks, true), IsEmpty());
  run.ranks.cp_comm_type = {"a2a"};
  EXPECT_THAT(context_device_problems(run.model, run.ranks, true), IsEmpty());
  run.ranks.cp_comm_type = {"a2a", "a2a+p2p"};
  EXPECT_THAT(context_device_problems(run.model, run.ranks, true), IsEmpty());
  run.ranks.hierarchical_context_parallel_sizes = {2, 2};
  EXPECT_EQ(context_device_problems(run.model, run.ranks, true).size(), 2u) << "keys of one layer";
  run.ranks.cp_comm_type = {"a2a", "all_gather"};
  EXPECT_EQ(context_device_problems(run.model, run.ranks, true).size(), 2u);
  run.ranks.cp_comm_type = {"p2p"};
  run.model.attention_dropout = 0;
  EXPECT_THAT(context_device_problems(run.model, run.ranks, false), IsEmpty());
}

}  // namespace
}  // namespace phx
