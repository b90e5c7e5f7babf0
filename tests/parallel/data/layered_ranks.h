// Ranks that share the units of a toy model: three layers of a matrix and a bias, and a head.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "phalanx/comm/thread_world.h"
#include "phalanx/ops/add.h"
#include "phalanx/parallel/data/data_parallel.h"
#include "phalanx/parallel/data/unit.h"
#include "support/gradients.h"

namespace phx::testing {

constexpr int64_t kToyWidth = 20;  // of a matrix [width, width]: 400 elements, padded to 512
constexpr size_t kToyLayers = 3, kToyHead = 3;  // units in the order of the model: layers, head

class LayeredToy : public Module {
 public:
  LayeredToy() {
    for (size_t i = 0; i < kToyLayers; ++i) {
      add_parameter(str_cat("layers.", i, ".matrix"), matrices[i]);
      add_parameter(str_cat("layers.", i, ".bias"), biases[i]);
    }
    add_parameter("head", head);
  }
  static ParameterSpec matrix() { return whole({kToyWidth, kToyWidth}, Init::normal(1)); }
  static ParameterSpec vector() { return whole({kToyWidth}, Init::normal(1)); }
  std::array<Parameter, kToyLayers> matrices{Parameter(matrix()), Parameter(matrix()),
                                             Parameter(matrix())};
  std::array<Parameter, kToyLayers> biases{Parameter(vector()), Parameter(vector()),
                                           Parameter(vector())};
  Parameter head{matrix()};
};

inline std::vector<int> everybody(const World& world) {
  std::vector<int> all;
  for (int i = 0; i < world.size(); ++i) all.push_back(i);
  return all;
}

struct LayeredRank {
  LayeredRank(World& world, const DataParallelOptions& options)
      : group(world.group(everybody(world), "dp")),
        store(model, runtime.device(),
              {.dtype = DType::f64,
               .cut = {.ranks = world.size(), .rank = world.rank()},
               .unit = unit_of,
               .shard_weights = options.sharding == Sharding::optim_grads_params,
               .shard_gradients = options.sharding >= Sharding::optim_grads}),
        data(store, {.shards = {.dense = group.get()}, .copies = {}}, options) {}

  int64_t live(Purpose purpose) { return runtime.allocator().report().live[size_t(purpose)]; }
  int64_t peak(Purpose purpose) { return runtime.allocator().report().peak[size_t(purpose)]; }

  // A forward through all units, and back: every element's gradient is `value`.
  void micro_batch(double value) {
    Tensor x = from_values(std::vector<double>(size_t(kToyWidth * kToyWidth), 0.0),
                           {kToyWidth, kToyWidth}, DType::f64, runtime.device());
    data.begin_forward();
    for (Parameter& matrix : model.matrices) x = add(matrix.acquire(), x);
    x = add(model.head.acquire(), x);
    data.end_forward(0);
    const std::vector<double> ones(size_t(x.numel()), value);
    backward(x, from_values(ones, x.shape(), DType::f64, runtime.device()));
  }
  // Micro-batch m of rank r has gradients 10^m (r + 1).
  void step(int64_t micro_batches) {
    store.begin_step();
    data.begin_step(micro_batches);
    for (int64_t m = 0, factor = 1; m < micro_batches; ++m, factor *= 10)
      micro_batch(double(factor * (group->rank() + 1)));
    data.finish_step();
  }

  Runtime runtime;
  std::unique_ptr<Communicator> group;
  LayeredToy model;
  ParameterStore store;
  DataParallel data;
};

inline void on_layered_ranks(int ranks, const DataParallelOptions& options,
                             const std::function<void(LayeredRank&)>& body) {
  run_thread_ranks(ranks, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    LayeredRank rank(world, options);
    body(rank);
  });
}

}  // namespace phx::testing
