// Gradients of which a rank keeps the sums of its piece of every unit (a bucket of the store that
// is cut). While a micro-batch's backward passes a unit, the unit's gradients have memory; then the
// ranks sum them up, each its piece, and add that to what the micro-batches before gave:
//
//   backward of unit   6          5          4          3
//   sums of            7          6          5          4        on a stream of its own
//   given back         8          7          6          5
//
// So a whole gradient of the model never exists, and two units' at most.
#pragma once

#include <vector>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/parallel/data/data_ranks.h"

namespace phx {

class ShardedGradients {
 public:
  // `ranks`: with a piece each.
  ShardedGradients(ParameterStore& store, const GridRanks& ranks);

  void begin_step();
  // What no unit has added to is zero then.
  void finish_step();

  // A gradient of the unit is about to be written: its first in this round overwrites.
  void open(size_t unit);
  bool is_open(size_t unit) const { return units_[unit].open; }
  // The unit's gradients of this round are complete: all ranks' are summed up. Without any since
  // the last time there is nothing to do.
  void reduce(size_t unit);

  int64_t reductions() const { return reductions_; }  // so far

 private:
  struct Unit {
    bool open = false;
    bool leaving = false;  // its sums are on their way
    bool kept = false;     // the rank's piece holds sums of this step
    Fence summed;
  };
  void settle(size_t unit);
  void clear_padding(size_t unit);

  ParameterStore& store_;
  GridRanks ranks_;
  std::vector<Unit> units_;
  int64_t reductions_ = 0;
};

}  // namespace phx
