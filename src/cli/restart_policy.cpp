#include "phalanx/cli/restart_policy.h"

#include <algorithm>

#include "phalanx/cli/exit_codes.h"

namespace phx {

std::optional<std::chrono::milliseconds> RestartPolicy::next(const LocalRanksResult& result,
                                                             std::optional<int64_t> checkpoint) {
  if (!result.first_failure || result.told_to_stop) return std::nullopt;
  // What is wrong with a command stays wrong.
  if (result.first_failure->exit_code == kExitUsage) return std::nullopt;
  if (checkpoint > checkpoint_) {
    in_a_row_ = 0;
    checkpoint_ = checkpoint;
  }
  if (in_a_row_ >= most_) return std::nullopt;
  const auto wait = std::chrono::seconds(1) * (1 << std::min<int64_t>(in_a_row_, 6));
  ++in_a_row_;
  ++total_;
  return std::min<std::chrono::milliseconds>(wait, std::chrono::minutes(1));
}

}  // namespace phx
