// Where a run of Megatron's stood, from the replicated state of its checkpoint.
#pragma once

#include <optional>
#include <string>

#include "train/run_state.h"

namespace phx {

// Nothing if the state does not say the iteration and the samples that it took.
std::optional<RunState> megatron_run_state(const std::string& common_json);

}  // namespace phx
