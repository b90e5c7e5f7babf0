// Data parallelism by itself, on toy parameters whose gradients the test writes: which buckets
// there are, what the ranks' sums are, who owns what, and what is refused.
#include "phalanx/parallel/data/data_parallel.h"

#include <gtest/gtest.h>

#include "phalanx/comm/thread_world.h"
#include "phalanx/ops/add.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

constexpr int64_t kWidth = 20;  // of a matrix [kWidth, kWidth]: 400 elements, padded to 512

// Three matrices and a bias.
class Toy : public Module {
 public:
  Toy() {
    add_parameter("first", first);
    add_parameter("second", second);
    add_parameter("third", third);
    add_parameter("bias", bias);
  }
  Parameter first{whole({kWidth, kWidth}, Init::normal(1))};
  Parameter second{whole({kWidth, kWidth}, Init::normal(1))};
  Parameter third{whole({kWidth, kWidth}, Init::normal(1))};
  Parameter bias{whole({kWidth}, Init::normal(1))};
};

// A rank of the test: a bucket a matrix, one for the bias.
struct Rank {
  Rank(World& world, const DataParallelOptions& options)
      : group(world.group(everybody(world), "dp")),
        store(model, runtime.device(),
              {.dtype = DType::f64,
               .bucket_elements = 1,
               .cut = {.ranks = world.size(), .rank = world.rank()}}),
        data(store, {.shards = {.dense = group.get()}, .copies = {}}, options) {}

  static std::vector<int> everybody(const World& world) {
    std::vector<int> all;
    for (int i = 0; i < world.size(); ++i) all.push_back(i);
    return all;
  }

  // A use of the parameter in which every element's gradient is `value`.
  void use(Parameter& parameter, double value) {
    const Tensor y = add(parameter.acquire(), zeros(parameter.local_shape(), DType::f64, device()));
    const std::vector<double> values(size_t(y.numel()), value);
    backward(y, from_values(values, y.shape(), DType::f64, device()));
  }
  void use_all(double value) {
    for (Parameter* parameter : {&model.bias, &model.third, &model.second, &model.first})
      use(*parameter, value);
  }
  void begin(int64_t micro_batches) {
    store.begin_step();
    data.begin_step(micro_batches);
  }
  // A whole step; rank r's micro-batch m has gradients 10^m (r + 1).
  void step(int64_t micro_batches) {
    begin(micro_batches);
    for (int64_t m = 0, factor = 1; m < micro_batches; ++m, factor *= 10)
      use_all(double(factor * (group->rank() + 1)));
    data.finish_step();
  }
  Device device() { return runtime.device(); }

  Runtime runtime;
  std::unique_ptr<Communicator> group;
  Toy model;
  ParameterStore store;
  DataParallel data;
};

void on_ranks(int ranks, const DataParallelOptions& options,
              const std::function<void(Rank&)>& body) {
  run_thread_ranks(ranks, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Rank rank(world, options);
    body(rank);
  });
}

void expect_all(const Tensor& x, double value) {
  EXPECT_EQ(to_values(x), std::vector<double>(size_t(x.numel()), value));
}

TEST(DataParallel, ABucketAMatrixAndOneForVectorsEachCutEvenly) {
  on_ranks(3, {.sharding = Sharding::optim}, [](Rank& rank) {
    const auto& buckets = rank.store.buckets();
    ASSERT_EQ(buckets.size(), 4u);
    const std::vector<FlatRange>& owned = rank.data.owned();
    ASSERT_EQ(owned.size(), buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      EXPECT_EQ(buckets[i].parameters, std::vector<size_t>{i});
      EXPECT_EQ(buckets[i].vectors, i == 3);
      ASSERT_EQ(buckets[i].range.count % 3, 0);
      const int64_t piece = buckets[i].range.count / 3;
      EXPECT_EQ(owned[i], (FlatRange{buckets[i].range.offset + rank.group->rank() * piece, piece}));
    }
  });
}

TEST(DataParallel, WithoutShardingEveryRankOwnsAll) {
  on_ranks(2, {}, [](Rank& rank) {
    EXPECT_EQ(rank.data.owned(), std::vector<FlatRange>{rank.store.all()});
    EXPECT_FALSE(rank.data.sharded());
  });
}

TEST(DataParallel, OneRankSharesWithNobody) {
  Runtime runtime;
  Toy model;
  ParameterStore store(model, runtime.device(), {.dtype = DType::f64});
  const DataParallel data(store, {}, {.sharding = Sharding::optim, .overlap_reduce = true});
  EXPECT_FALSE(data.sharded());
  EXPECT_EQ(data.owned(), std::vector<FlatRange>{store.all()});
}

// With overlap the first step learns and the later ones reduce on the way: the sums are the same,
// also in a step of another number of micro-batches.
TEST(DataParallel, GradientsAreSumsOverRanksAndMicroBatches) {
  for (const bool overlap : {false, true})
    on_ranks(2, {.overlap_reduce = overlap}, [](Rank& rank) {
      for (const int64_t micro_batches : {2, 2, 3, 1}) {
        rank.step(micro_batches);
        const double sum = micro_batches == 3 ? 333 : micro_batches == 2 ? 33 : 3;  // (1 + 2) ..
        for (const Parameter* parameter : rank.store.parameters())
          expect_all(parameter->gradient(), sum);
      }
    });
}

TEST(DataParallel, AShardHasTheSumsOfItsPieces) {
  for (const bool overlap : {false, true})
    on_ranks(2, {.sharding = Sharding::optim, .overlap_reduce = overlap}, [](Rank& rank) {
      for (int i = 0; i < 3; ++i) {
        rank.step(2);
        for (size_t p = 0; p < rank.store.parameters().size(); ++p) {
          const FlatRange parameter = rank.store.range_of(p);
          for (const FlatRange& own : intersection(std::span(&parameter, 1), rank.data.owned()))
            expect_all(rank.store.gradients(own), 33);
        }
      }
    });
}

TEST(DataParallel, EveryRankGetsTheWeightsThatOthersOwn) {
  for (const bool overlap : {false, true})
    on_ranks(2, {.sharding = Sharding::optim, .overlap_gather = overlap}, [](Rank& rank) {
      for (const FlatRange& own : rank.data.owned()) {
        const std::vector<double> updated(size_t(own.count), rank.group->rank() + 1);
        Tensor weights = rank.store.weights(own);
        copy_from_host(weights, updated.data());
      }
      rank.data.gather_weights();
      rank.data.wait_for_weights();
      for (const Bucket& bucket : rank.store.buckets())
        for (int owner = 0; owner < 2; ++owner) {
          const int64_t piece = bucket.range.count / 2;
          expect_all(rank.store.weights({bucket.range.offset + owner * piece, piece}), owner + 1);
        }
    });
}

// What the ranks' error says, where all of them make the same mistake.
std::string mistake(const DataParallelOptions& options, const std::function<void(Rank&)>& body) {
  return error_of([&] { on_ranks(2, options, body); });
}

TEST(DataParallel, AGradientAfterItsBucketWasReducedIsRefused) {
  const std::string error = mistake({.overlap_reduce = true}, [](Rank& rank) {
    rank.step(2);
    rank.begin(2);
    for (int i = 0; i < 2; ++i) rank.use(rank.model.second, 1);
    rank.use(rank.model.second, 1);
  });
  EXPECT_NE(error.find("a gradient of second came after the ranks had summed its bucket: use 3 of "
                       "it in a step of 2 micro-batches, where 1 a micro-batch were expected"),
            std::string::npos)
      << error;
}

TEST(DataParallel, AGradientAfterTheStepIsRefusedWithoutOverlapToo) {
  for (const bool shard : {false, true}) {
    const std::string error =
        mistake({.sharding = shard ? Sharding::optim : Sharding::no_shard}, [](Rank& rank) {
          rank.step(1);
          rank.use(rank.model.bias, 1);
        });
    EXPECT_NE(error.find("a gradient of bias came after"), std::string::npos) << error;
  }
}

TEST(DataParallel, AUseThatTheFirstStepDidNotHaveIsRefused) {
  const std::string error = mistake({.overlap_reduce = true}, [](Rank& rank) {
    rank.begin(1);
    for (Parameter* parameter : {&rank.model.bias, &rank.model.first, &rank.model.second})
      rank.use(*parameter, 1);
    rank.data.finish_step();
    rank.step(1);
  });
  EXPECT_NE(error.find("parameter third was used 1 times in a step of 1 micro-batches, but the "
                       "first step used it 0 times in each"),
            std::string::npos)
      << error;
}

TEST(DataParallel, AMissingUseIsRefused) {
  const std::string error = mistake({.overlap_reduce = true}, [](Rank& rank) {
    rank.step(2);
    rank.begin(2);
    rank.use_all(1);
    for (Parameter* parameter : {&rank.model.bias, &rank.model.first, &rank.model.second})
      rank.use(*parameter, 1);
    rank.data.finish_step();
  });
  EXPECT_NE(error.find("parameter third was used 1 times in a step of 2 micro-batches, but the "
                       "first step used it 1 times in each"),
            std::string::npos)
      << error;
}

TEST(DataParallel, UsesThatDifferBetweenMicroBatchesAreRefusedInTheFirstStep) {
  const std::string error = mistake({.overlap_reduce = true}, [](Rank& rank) {
    rank.begin(2);
    rank.use_all(1);
    rank.use_all(1);
    rank.use(rank.model.first, 1);
    rank.data.finish_step();
  });
  EXPECT_NE(error.find("parameter first was used 3 times in 2 micro-batches"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace phx
