// Gradients that are summed up unit by unit: the sums, when they are formed, and how much memory
// that takes.
#include "phalanx/parallel/data/sharded_gradients.h"

#include "parallel/data/layered_ranks.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {
namespace {

using namespace phx::testing;

// What the rank keeps of a parameter's gradient.
std::vector<double> kept_values(const LayeredRank& rank, size_t parameter) {
  const FlatRange own = rank.store.range_of(parameter);
  std::vector<double> values;
  for (const FlatRange& kept : intersection({&own, 1}, rank.store.kept_gradients()))
    for (const double value : to_values(rank.store.gradients(kept))) values.push_back(value);
  return values;
}

TEST(ShardedGradients, ARanksPieceHasTheSumsOverRanksAndMicroBatches) {
  for (const Sharding sharding : {Sharding::optim_grads, Sharding::optim_grads_params})
    on_layered_ranks(2, {.sharding = sharding}, [](LayeredRank& rank) {
      for (const int64_t micro_batches : {2, 2, 3, 1}) {
        rank.step(micro_batches);
        const double sum = micro_batches == 3 ? 333 : micro_batches == 2 ? 33 : 3;  // (1 + 2) ..
        for (size_t i = 0; i < rank.store.parameters().size(); ++i) {
          const bool unused = rank.store.parameters()[i]->name().ends_with("bias");
          for (const double value : kept_values(rank, i)) ASSERT_EQ(value, unused ? 0 : sum);
        }
      }
    });
}

TEST(ShardedGradients, PaddingStaysZero) {
  on_layered_ranks(2, {.sharding = Sharding::optim_grads}, [](LayeredRank& rank) {
    for (const int64_t count : {768, 512, 768, 512, 768}) {  // memory that is not zero
      std::vector<Tensor> dirty;
      for (int i = 0; i < 3; ++i) {
        dirty.push_back(empty({count}, DType::f64, rank.runtime.device()));
        kernels::fill(dirty.back(), 1e6);
      }
    }
    rank.step(2);
    double sum = 0, of_parameters = 0;
    for (const double value : to_values(rank.store.gradients())) sum += value;
    for (size_t i = 0; i < rank.store.parameters().size(); ++i)
      for (const double value : kept_values(rank, i)) of_parameters += value;
    EXPECT_EQ(sum, of_parameters);
  });
}

TEST(ShardedGradients, AUnitIsSummedUpOnceAMicroBatchFromTheFirstStepOn) {
  on_layered_ranks(2, {.sharding = Sharding::optim_grads}, [](LayeredRank& rank) {
    for (int64_t step = 1; step <= 3; ++step) {
      rank.step(4);
      EXPECT_EQ(rank.data.unit_reductions(), step * 4 * int64_t(kToyLayers + 1));
    }
  });
}

TEST(ShardedGradients, AtMostTwoUnitsGradientsAreThereBesideTheShard) {
  on_layered_ranks(2, {.sharding = Sharding::optim_grads_params}, [](LayeredRank& rank) {
    const int64_t shard = rank.live(Purpose::gradients);
    rank.step(2);
    rank.step(2);
    EXPECT_EQ(rank.peak(Purpose::gradients), shard + 2 * 768 * 8);
    EXPECT_EQ(rank.live(Purpose::gradients), shard);
  });
}

TEST(ShardedGradients, AUnitThatNothingUsesHasGradientZero) {
  on_layered_ranks(2, {.sharding = Sharding::optim_grads}, [](LayeredRank& rank) {
    Tensor kept = rank.store.gradients();
    kernels::fill(kept, 7);  // of a step before
    rank.store.begin_step();
    rank.data.begin_step(1);
    rank.data.finish_step();
    for (size_t i = 0; i < rank.store.parameters().size(); ++i)
      for (const double value : kept_values(rank, i)) ASSERT_EQ(value, 0);
  });
}

TEST(ShardedGradients, AnAbandonedStepLeavesNothingBehind) {
  on_layered_ranks(2, {.sharding = Sharding::optim_grads_params}, [](LayeredRank& rank) {
    const int64_t gradients = rank.live(Purpose::gradients), weights = rank.live(Purpose::weights);
    rank.store.begin_step();
    rank.data.begin_step(2);
    rank.micro_batch(1);
    rank.data.abandon_step();
    EXPECT_EQ(rank.live(Purpose::gradients), gradients);
    EXPECT_EQ(rank.live(Purpose::weights), weights);
    rank.step(1);
    EXPECT_EQ(kept_values(rank, 0).front(), 3);
  });
}

TEST(ShardedGradients, AMicroBatchWithoutAUnitIsRefused) {
  const std::string error = error_of([] {
    on_layered_ranks(2, {.sharding = Sharding::optim_grads}, [](LayeredRank& rank) {
      rank.step(1);
      rank.store.begin_step();
      rank.data.begin_step(1);
      rank.data.finish_step();
    });
  });
  EXPECT_NE(
      error.find("was used 0 times in a step of 1 micro-batches, but the first step used it 1 "
                 "times in each"),
      std::string::npos)
      << error;
}

}  // namespace
}  // namespace phx
