// Ranks that hold the same weights and see different samples. Gradients are plain sums (the loss
// was divided by the global number of tokens already), bucket by bucket; with a sharded optimizer
// (ZeRO-1) every rank gets the sum of its piece of each bucket only, updates that piece, and
// gathers the others' weights.
//
// With overlap a bucket is reduced as soon as the last backward of the step has added the last
// gradient of it. How often a parameter is used in a micro-batch is learned in the first step,
// which reduces at its end; a step that uses it more or less often is an error, and so is, with or
// without overlap, a gradient that comes when its bucket is already reduced: the ranks would hold
// different sums from there on.
#pragma once

#include <vector>

#include "phalanx/comm/communicator.h"
#include "phalanx/nn/parameter_store.h"

namespace phx {

struct DataParallelOptions {
  bool shard_optimizer = false;  // --use-distributed-optimizer
  bool overlap_reduce = false;   // --overlap-grad-reduce
  bool overlap_gather = false;   // --overlap-param-gather
};

// Who holds the same weights, by the grid of a parameter; null: one rank.
struct DataRanks {
  Communicator* dense = nullptr;
  Communicator* expert = nullptr;
  Communicator* of(Grid grid) const { return grid == Grid::dense ? dense : expert; }
};

class DataParallel {
 public:
  DataParallel(ParameterStore& store, const DataRanks& ranks, const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Ranks that hold the same parameters of a grid, and this one's place among them.
  int size(Grid grid) const { return ranks_.of(grid) == nullptr ? 1 : ranks_.of(grid)->size(); }
  int rank(Grid grid) const { return ranks_.of(grid) == nullptr ? 0 : ranks_.of(grid)->rank(); }
  // Whether this rank updates a piece only of the parameters on a grid; of any.
  bool sharded(Grid grid) const { return options_.shard_optimizer && size(grid) > 1; }
  bool sharded() const { return sharded(Grid::dense) || sharded(Grid::expert); }

  // What this rank updates: all of the flat buffers, or its pieces of the buckets.
  const std::vector<FlatRange>& owned() const { return owned_; }

  // Around the backward of a step of that many micro-batches. After finish_step the gradients that
  // this rank owns are sums over all ranks.
  void begin_step(int64_t micro_batches);
  void finish_step();

  // After the update: every rank gets the weights that others own. With overlap a weight is waited
  // for when it is first used.
  void gather_weights();
  // Whoever reads the weights without acquiring them calls this before.
  void wait_for_weights();

 private:
  bool alone() const { return size(Grid::dense) == 1 && size(Grid::expert) == 1; }
  FlatRange piece_of(const Bucket& bucket) const;  // that this rank updates
  void use_done(size_t parameter);
  void check_uses() const;
  void learn_uses();
  void reduce(size_t bucket);
  void wait_for_bucket(size_t bucket);

  ParameterStore& store_;
  DataRanks ranks_;
  DataParallelOptions options_;
  std::vector<FlatRange> owned_;
  std::vector<size_t> bucket_of_;  // per parameter

  // The running step.
  int64_t micro_batches_ = 0;
  std::vector<int64_t> uses_;           // per parameter, so far
  std::vector<int64_t> uses_expected_;  // per parameter and micro-batch; empty: not known yet
  std::vector<int64_t> pending_;        // per bucket: parameters that are still to come
  std::vector<char> reduced_;           // per bucket

  struct Gather {
    bool waiting = false;
    Fence done;
  };
  std::vector<Gather> gathers_;  // per bucket
};

}  // namespace phx
