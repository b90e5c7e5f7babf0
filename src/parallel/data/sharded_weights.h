// Weights of which a rank keeps its piece of every unit (a bucket of the store that is cut). A unit
// is gathered before its first use and given back after its last one:
//
//   unit used       3          4          5          6
//   gathered        4          5          6          7         on a stream of its own
//   given back      2          3          4          5
//
// The order in which a step uses its units is noted in the first step of its kind and followed by
// the next ones: what comes next is gathered ahead, and what comes again soon stays. A step that
// uses them in another order, and the first one, gather a unit when it is needed and keep the two
// that were used last. All ranks of a unit use it in the same order, or they would wait for each
// other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "phalanx/nn/parameter_store.h"
#include "phalanx/parallel/data/data_ranks.h"

namespace phx {

struct GatherOptions {
  // Units are gathered ahead while they have at most this many elements together, but one always.
  int64_t ahead_elements = 0;
  // A unit that the step uses again stays until then: gathered once a step, not once a use.
  bool keep_between_uses = false;
};

class ShardedWeights {
 public:
  // `ranks`: with a piece each.
  ShardedWeights(ParameterStore& store, const GridRanks& ranks, const GatherOptions& options);
  ~ShardedWeights();
  ShardedWeights(const ShardedWeights&) = delete;
  ShardedWeights& operator=(const ShardedWeights&) = delete;

  // Around what uses the units in the order known as `kind`. After end() all memory is given back,
  // so that the pieces may be updated; outside of both, units are gathered as they are needed.
  void begin(const std::string& kind);
  void end();
  // Gives everything back and forgets a step that did not end.
  void abandon();

  void acquire(size_t unit);
  void release(size_t unit);

  int64_t gathers() const { return gathers_; }  // so far

 private:
  using Order = std::vector<size_t>;  // units, none twice in a row
  struct Unit {
    int users = 0;
    bool here = false;
    bool on_its_way = false;
    Fence arrived;
  };

  void enter(size_t unit);
  std::vector<size_t> ahead() const;
  bool stays(size_t unit, const std::vector<size_t>& next) const;
  void make_room(const std::vector<size_t>& next);
  void gather(size_t unit);
  void wait_for(size_t unit);
  void give_back(size_t unit);
  int64_t elements(size_t unit) const { return store_.buckets()[unit].range.count; }
  Runtime& runtime() const { return store_.weights().runtime(); }

  ParameterStore& store_;
  GridRanks ranks_;
  GatherOptions options_;
  std::vector<Unit> units_;
  std::map<std::string, Order> orders_;  // by kind
  std::string kind_;                     // of the running step
  const Order* order_ = nullptr;         // that it follows, at `at_`; null: not known, or left
  size_t at_ = 0;
  Order noted_;  // of the running step, so far
  bool running_ = false;
  int64_t gathers_ = 0;
};

}  // namespace phx
