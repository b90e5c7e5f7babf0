// When `phalanx launch --max-restarts` starts the ranks of a run again after a failure, and when it
// gives up: after so many restarts in a row none of which brought the run a new checkpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "phalanx/comm/local_ranks.h"

namespace phx {

class RestartPolicy {
 public:
  // `checkpoint`: the newest that the run has before its first start, if any.
  RestartPolicy(int64_t most, std::optional<int64_t> checkpoint)
      : most_(most), checkpoint_(checkpoint) {}

  // After ranks that failed: how long to wait before they are started again. Nothing: they are not.
  // The wait doubles from one second to a minute while the run gets no further. `checkpoint`: the
  // newest now.
  std::optional<std::chrono::milliseconds> next(const LocalRanksResult& result,
                                                std::optional<int64_t> checkpoint);

  int64_t in_a_row() const { return in_a_row_; }  // restarts without a new checkpoint
  int64_t total() const { return total_; }

 private:
  int64_t most_;
  std::optional<int64_t> checkpoint_;
  int64_t in_a_row_ = 0, total_ = 0;
};

}  // namespace phx
