// What all ranks of a run must have alike, as they compare it when they meet (comm/settings.h).
#pragma once

#include <span>
#include <string>

#include "phalanx/cli/pretrain_options.h"
#include "phalanx/comm/settings.h"

namespace phx {

// Something that ranks may have differently, and why that is sound.
struct MayDiffer {
  const char* name;
  const char* reason;
};
std::span<const MayDiffer> flags_that_may_differ();      // without dashes
std::span<const MayDiffer> variables_that_may_differ();  // of those that are compared by prefix

// Options, program, device, data files and environment of this rank. `device`: what --device came
// to. `variables`: "NAME=value" each.
Settings run_settings(const PretrainOptions& options, const std::string& device,
                      std::span<const std::string> variables);
std::vector<std::string> environment_variables();  // of this process

}  // namespace phx
