#include "phalanx/verify/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/large_run.h"
#include "verify/parity_matrix.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::Contains;

TEST(Shrink, KeepsEveryAxisAndSaysWhatItShrank) {
  const SmallRun small = shrink(large_run(), kWorld);
  expect_valid(small, "large");
  EXPECT_EQ(small.world, 16);
  EXPECT_EQ(small.config.parallel.tensor_model_parallel_size, 2);
  EXPECT_EQ(small.config.parallel.pipeline_model_parallel_size, 4);
  EXPECT_TRUE(small.config.parallel.sequence_parallel);
  EXPECT_TRUE(small.config.train.fp64);
  EXPECT_FALSE(small.config.train.bf16);
  EXPECT_EQ(small.config.optim.exp_avg_sq_dtype, StateDType::fp32);
  for (const char* change :
       {"TP 8 -> 2", "PP 8 -> 4", "DP 32 -> 2", "layers 80 -> 4", "heads 64 -> 4",
        "query groups 8 -> 2", "vocabulary 128256 -> 53", "micro-batches a step and rank 64 -> 6"})
    EXPECT_THAT(small.changes, Contains(change));
}

TEST(Shrink, KeepsTensorParallelRanksWhereThereIsRoom) {
  RunConfig config = large_run();
  config.parallel.pipeline_model_parallel_size = 1;
  EXPECT_EQ(shrink(config, 8 * 32).config.parallel.tensor_model_parallel_size, 4);
  config.parallel.tensor_model_parallel_size = 7;
  config.model.num_attention_heads = config.model.num_query_groups = 56;
  config.model.ffn_hidden_size = 28672;
  config.model.seq_length = 7168;
  const SmallRun seven = shrink(config, 7 * 32);
  EXPECT_EQ(seven.config.parallel.tensor_model_parallel_size, 7);
  EXPECT_EQ(seven.world, 14);
  expect_valid(seven, "seven");
}

TEST(Shrink, RanksThatShareAKeyGroupStillDo) {
  RunConfig config = large_run();
  config.parallel.pipeline_model_parallel_size = 2;
  for (const int64_t groups : {1, 2, 4}) {
    config.model.num_query_groups = groups;
    const SmallRun small = shrink(config, 16);
    expect_valid(small, std::to_string(groups));
    EXPECT_LT(small.config.model.query_groups(), small.config.parallel.tensor_model_parallel_size);
    EXPECT_EQ(make_layout(small.config.layout(), small.world).mesh.key_sharers,
              groups == 1 ? 4 : 2);
  }
  config.model.num_query_groups = 32;
  const SmallRun several = shrink(config, 16);
  EXPECT_EQ(several.config.model.query_groups(),
            2 * several.config.parallel.tensor_model_parallel_size);
}

TEST(Shrink, GroupsOfInterleavedMicroBatches) {
  RunConfig config = large_run();
  config.parallel.num_virtual_stages_per_pipeline_rank = 2;
  const auto small = [&](int64_t micro_batches, std::optional<int64_t> group) {
    config.train.global_batch_size = micro_batches * 32;
    config.parallel.microbatch_group_size_per_virtual_pipeline_stage = group;
    const SmallRun run = shrink(config, kWorld);
    expect_valid(run, std::to_string(micro_batches));
    return std::pair(run.config.train.num_micro_batches(2),
                     run.config.parallel.microbatch_group_size_per_virtual_pipeline_stage);
  };
  EXPECT_EQ(small(8, {}), std::pair(int64_t{4}, std::optional<int64_t>{}));
  EXPECT_EQ(small(64, {}), std::pair(int64_t{8}, std::optional<int64_t>{}));
  EXPECT_EQ(small(64, 16), std::pair(int64_t{10}, std::optional<int64_t>{5}));
  EXPECT_EQ(small(26, 16), std::pair(int64_t{9}, std::optional<int64_t>{5}));
}

TEST(Shrink, EveryLayoutOfTheMatrixStaysOne) {
  for (const MatrixLayout& layout : parity_matrix())
    expect_valid(shrink(layout.config, layout.world), layout.name());
}

}  // namespace
}  // namespace phx
