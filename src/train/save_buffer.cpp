#include "phalanx/train/save_buffer.h"

#include <algorithm>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {

namespace {

constexpr int64_t kSmallest = 16 << 20;  // two slots of the ring
constexpr double kDiskRate = 2e9;        // bytes a second, to predict with; the log says so

}  // namespace

std::string SaveBuffer::text() const {
  if (holds_all())
    return str_cat(
        "asynchronous saves: ", format_bytes(bytes),
        " of host memory hold all of a rank's state; copying it goes on beside the next ", "step");
  const double seconds = double(state - bytes) / kDiskRate;
  return str_cat("asynchronous saves: ", format_bytes(bytes), " of host memory for ",
                 format_bytes(state), " of a rank's state; the rest waits for the disk, at 2 GB/s ",
                 format_duration(seconds), " less the time of a step",
                 "\n  hint: --save-buffer-mib gives it more");
}

SaveBuffer save_buffer(int64_t state, int64_t free_memory, int ranks, ComputesOn where) {
  const int64_t quarter = free_memory / 4;
  const int64_t share =
      (where == ComputesOn::host ? quarter : free_memory - quarter) / std::max(ranks, 1);
  return {.bytes = std::max(std::min(state, share), kSmallest), .state = state};
}

}  // namespace phx
