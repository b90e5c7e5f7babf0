// Gathering units around their use: what is here when, what is gathered how often, and that nothing
// old is read.
#include "phalanx/parallel/data/sharded_weights.h"

#include "parallel/data/layered_ranks.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr DataParallelOptions kSharded{.sharding = Sharding::optim_grads_params};

bool is_here(const LayeredRank& rank, size_t unit) {
  return rank.store.weights_of(unit).storage()->resident();
}

std::vector<bool> here(const LayeredRank& rank) {
  std::vector<bool> units;
  for (size_t i = 0; i <= kToyHead; ++i) units.push_back(is_here(rank, i));
  return units;
}

// The units by hand, without a graph.
struct ByHand {
  explicit ByHand(LayeredRank& rank, const GatherOptions& options = {})
      : weights(rank.store, {.dense = rank.group.get()}, options) {}
  void use(size_t unit) {
    weights.acquire(unit);
    weights.release(unit);
  }
  void pass(std::initializer_list<size_t> units) {
    weights.begin("pass");
    for (const size_t unit : units) use(unit);
    weights.end();
  }
  ShardedWeights weights;
};

TEST(ShardedWeights, ARankKeepsItsPieceAndNothingElse) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ASSERT_EQ(rank.store.buckets().size(), kToyLayers + 1);
    // 400 + 20 elements, and 400: 640 and 512 with padding to 128, 768 to two pieces of whole 128.
    EXPECT_EQ(rank.live(Purpose::weights), (3 * 768 + 512) / 2 * 8);
    EXPECT_EQ(here(rank), std::vector<bool>(kToyLayers + 1, false));
  });
}

TEST(ShardedWeights, AGatheredUnitIsWhatOneRankHas) {
  Runtime runtime;
  LayeredToy model;
  const ParameterStore whole(model, runtime.device(), {.dtype = DType::f64});
  const std::vector<double> wanted = to_values(model.matrices[1].value());
  on_layered_ranks(3, kSharded, [&](LayeredRank& rank) {
    const Held held = rank.model.matrices[1].acquire();
    EXPECT_EQ(to_values(held), wanted);
  });
}

TEST(ShardedWeights, AnUnknownOrderKeepsTheTwoUnitsUsedLast) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank);
    units.weights.begin("pass");
    units.use(0);
    units.use(1);
    EXPECT_EQ(here(rank), (std::vector<bool>{true, true, false, false}));
    units.use(2);
    EXPECT_EQ(here(rank), (std::vector<bool>{false, true, true, false}));
    units.weights.end();
    EXPECT_EQ(here(rank), (std::vector<bool>{false, false, false, false}));
    EXPECT_EQ(units.weights.gathers(), 3);
  });
}

TEST(ShardedWeights, AKnownOrderGathersTheNextUnitAheadAndLetsTheLastGo) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank);
    units.pass({0, 1, 2, 3, 2});
    units.weights.begin("pass");
    units.use(0);
    EXPECT_EQ(here(rank), (std::vector<bool>{true, true, false, false}));
    units.use(1);
    EXPECT_EQ(here(rank), (std::vector<bool>{false, true, true, false}));
    units.use(2);
    EXPECT_EQ(here(rank), (std::vector<bool>{false, false, true, true}));
    units.use(3);  // and 2 comes again
    EXPECT_EQ(here(rank), (std::vector<bool>{false, false, true, true}));
    units.use(2);
    EXPECT_EQ(here(rank), (std::vector<bool>{false, false, true, false}));
    units.weights.end();
    EXPECT_EQ(units.weights.gathers(), 4 + 4);
  });
}

TEST(ShardedWeights, MoreUnitsAreGatheredAheadWhileTheyFit) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank, {.ahead_elements = 2 * 768});
    units.pass({0, 1, 2, 3});
    units.weights.begin("pass");
    units.use(0);
    EXPECT_EQ(here(rank), (std::vector<bool>{true, true, true, false}));
    units.weights.end();
  });
}

TEST(ShardedWeights, KeptBetweenUsesAUnitIsGatheredOnceAStep) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank, {.keep_between_uses = true});
    for (int i = 0; i < 2; ++i) units.pass({0, 1, 2, 3, 2, 1, 0, 1, 2, 3});
    EXPECT_EQ(units.weights.gathers(), 2 * 4);
    EXPECT_EQ(here(rank), (std::vector<bool>{false, false, false, false}));
  });
}

TEST(ShardedWeights, AStepInAnotherOrderIsRightAndLearnedAnew) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank);
    units.pass({0, 1, 2});
    units.pass({0, 2, 1});  // 1 is gathered ahead, dropped, and gathered again
    EXPECT_EQ(units.weights.gathers(), 3 + 4);
    units.pass({0, 2, 1});
    EXPECT_EQ(units.weights.gathers(), 3 + 4 + 3);
  });
}

TEST(ShardedWeights, AUnitInUseStaysWhateverComes) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    ByHand units(rank);
    units.weights.begin("pass");
    units.weights.acquire(0);
    units.use(1);
    units.use(2);
    units.use(3);
    EXPECT_TRUE(is_here(rank, 0));
    units.weights.release(0);
    units.weights.end();
  });
}

TEST(ShardedWeights, AnUpdateIsSeenByTheNextStep) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    rank.step(1);
    for (const FlatRange& own : rank.data.owned()) {
      Tensor piece = rank.store.weights(own);
      copy(from_values(std::vector<double>(size_t(own.count), 7.0), {own.count}, DType::f64,
                       rank.runtime.device()),
           piece);
    }
    rank.data.gather_weights();
    const Held held = rank.model.matrices[0].acquire();
    EXPECT_EQ(to_values(held), std::vector<double>(size_t(kToyWidth * kToyWidth), 7.0));
  });
}

TEST(ShardedWeights, AWeightThatIsNotHereCannotBeRead) {
  on_layered_ranks(2, kSharded, [](LayeredRank& rank) {
    rank.step(1);
    EXPECT_NE(error_of([&] {
                to_values(rank.model.matrices[0].value());
              }).find("a tensor is used while its memory is given back"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace phx
