// Ranks that hold the same weights and see different samples. Gradients are plain sums (the loss
// was divided by the global number of tokens already), bucket by bucket. What a rank keeps is a
// matter of Sharding:
//
//   no_shard             every rank has and updates all
//   optim                ZeRO-1: every rank gets the sum of its piece of each bucket only, updates
//                        that piece, and gathers the others' weights
//   optim_grads          ZeRO-2: and keeps the sums of its pieces alone, added up micro-batch by
//                        micro-batch (sharded_gradients.h)
//   optim_grads_params   ZeRO-3: and keeps its pieces of the weights, which are gathered unit by
//                        unit around their use (sharded_weights.h)
//
// Shards may be kept several times (hybrid sharding, HSDP), once in each of some groups of ranks.
// Then the sums of a group are added to those of the others at the end of the step, and every group
// updates all; or, with cut owners (BucketCut), the ranks that keep the same piece update a part of
// it each and gather the rest.
//
// With overlap a bucket is reduced as soon as the last backward of the step has added the last
// gradient of it. How often a parameter is used in a micro-batch is learned in the first step,
// which reduces at its end; a step that uses it more or less often is an error, and so is, with or
// without overlap, a gradient that comes when its bucket is already reduced: the ranks would hold
// different sums from there on.
//
// Sharded gradients are reduced after every micro-batch, once all of the unit's parameters have had
// their uses in it. The first step takes for these how often the forward of a micro-batch acquires
// them, so that it adds up in the same order as all later ones.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/nn/weight_door.h"
#include "phalanx/parallel/data/data_ranks.h"
#include "phalanx/parallel/data/sharded_gradients.h"
#include "phalanx/parallel/data/sharded_weights.h"
#include "phalanx/parallel/ownership.h"
#include "phalanx/parallel/sharding.h"

namespace phx {

struct DataParallelOptions {
  Sharding sharding = Sharding::no_shard;  // the store is made for the same (StoreOptions)
  bool overlap_reduce = false;             // --overlap-grad-reduce
  bool overlap_gather = false;             // --overlap-param-gather
  GatherOptions gather = {};               // of sharded weights
};

class DataParallel : private WeightDoor {
 public:
  DataParallel(ParameterStore& store, const DataRanks& ranks, const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Whether this rank updates a piece only of the parameters on a grid; of any.
  bool sharded(Grid grid) const { return division_of_state(grid) != Division::none; }
  bool sharded() const { return sharded(Grid::dense) || sharded(Grid::expert); }
  // How data-parallel ranks divide the weights of a grid that they keep, and their optimizer state.
  Division division_of_weights(Grid grid) const;
  Division division_of_state(Grid grid) const;

  // What this rank updates: all of the flat buffers, or its pieces of the buckets.
  const std::vector<FlatRange>& owned() const { return owned_; }

  // Around the backward of a step of that many micro-batches. After finish_step the gradients that
  // this rank owns are sums over all ranks, and of sharded weights nothing but the pieces is here.
  void begin_step(int64_t micro_batches);
  void finish_step();
  void abandon_step();  // instead of finish_step: its gradients are not wanted
  // Around the forward of a micro-batch through a chunk of the model, in a step.
  void begin_forward();
  void end_forward(int chunk);
  // Around forwards without backward. `kind`: those of one kind use their weights in one order.
  void begin_forwards(const std::string& kind);
  void end_forwards();

  // After the update: every rank gets the weights that others own. With overlap a weight is waited
  // for when it is first used.
  void gather_weights();
  // Whoever reads the weights without acquiring them calls this before.
  void wait_for_weights();

  // So far, of sharded weights and gradients.
  int64_t unit_gathers() const { return weights_ ? weights_->gathers() : 0; }
  int64_t unit_reductions() const { return gradients_ ? gradients_->reductions() : 0; }

 private:
  void acquire(size_t parameter, WeightUse use) override;
  void release(size_t parameter) override;
  void open_gradient(size_t parameter) override;
  void use_done(size_t parameter) override;

  bool alone() const;
  bool cut(Grid grid) const {
    return options_.sharding >= Sharding::optim && ranks_.shards.size(grid) > 1;
  }
  void add_up_copies();
  const Bucket& bucket_of(size_t parameter) const {
    return store_.buckets()[store_.bucket_of(parameter)];
  }
  bool cut_weights(size_t parameter) const { return weights_ && bucket_of(parameter).is_cut(); }
  bool cut_gradients(size_t bucket) const {
    return gradients_ && store_.buckets()[bucket].is_cut();
  }
  bool knows_uses(size_t bucket) const;
  void count_use(size_t parameter);
  void begin_round(size_t bucket);
  void check_uses() const;
  void learn_uses();
  void reduce(size_t bucket);
  void wait_for_bucket(size_t bucket);

  ParameterStore& store_;
  DataRanks ranks_;
  DataParallelOptions options_;
  std::vector<FlatRange> owned_;
  bool owners_cut_ = false;  // ranks with the same piece update a part of it each
  std::optional<ShardedWeights> weights_;
  std::optional<ShardedGradients> gradients_;

  // The running step.
  int64_t micro_batches_ = 0;
  std::vector<int64_t> uses_;           // per parameter, so far
  std::vector<int64_t> uses_expected_;  // per parameter and micro-batch
  bool learned_ = false;                // by a whole step; before that what forwards say
  std::vector<int64_t> pending_;        // per bucket: parameters that are still to come
  std::vector<int64_t> rounds_;         // per bucket: micro-batches that were reduced
  std::vector<char> reduced_;           // per bucket: for the last time in this step

  // Of the first step.
  bool in_forward_ = false;
  std::vector<int64_t> acquired_;    // per parameter, in the running forward
  std::set<int> chunks_passed_;      // by a forward
  std::vector<char> bucket_passed_;  // per bucket

  struct Gather {
    bool waiting = false;
    Fence done;
  };
  std::vector<Gather> gathers_;  // per bucket
};

}  // namespace phx
