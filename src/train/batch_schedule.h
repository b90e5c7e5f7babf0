// The global batch size over a run, as a pure function of the samples consumed so far: one size, or
// Megatron's --step-batch-size-schedule "0:768 250B:1536".
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "phalanx/base/problem.h"

namespace phx {

class BatchSchedule {
 public:
  struct Step {
    int64_t from = 0;  // consumed samples from which on the size holds
    int64_t size = 1;  // sequences in one optimizer step
  };

  static BatchSchedule constant(int64_t size);

  // Entries TOKENS:SIZE between spaces or commas, from 0 tokens on and rising. Numbers may end in
  // K, M, B or T (1e3, 1e6, 1e9, 1e12). A threshold counts as TOKENS / seq_length samples, rounded
  // down. Throws an Error with all problems.
  static BatchSchedule parse(std::string_view text, int64_t seq_length);
  // Everything that is wrong with `text`, each with the entry's name.
  static Problems problems(std::string_view text, int64_t seq_length);

  std::set<int64_t> sizes() const;
  int64_t size_at(int64_t consumed) const;  // of the iteration that comes after `consumed` samples
  int64_t largest() const;

  // Consumed samples when `iterations` more are done.
  int64_t after(int64_t consumed, int64_t iterations) const;
  // Iterations from the start of a run that `samples` suffice for: no batch is cut short.
  int64_t iterations_within(int64_t samples) const;

 private:
  explicit BatchSchedule(std::vector<Step> steps) : steps_(std::move(steps)) {}

  struct Stretch {  // of iterations of equal size
    int64_t size, iterations;
  };
  Stretch stretch_at(int64_t consumed) const;

  std::vector<Step> steps_;  // by rising `from`, the first 0
};

}  // namespace phx
