// What would help a run that does not fit: flags, each planned again.
#pragma once

#include <string>
#include <vector>

#include "phalanx/plan/run_plan.h"

namespace phx {

struct Trial {
  std::string flags;       // to add or to change
  double added_flops = 0;  // of a step, as a share
  int64_t taken = 0;       // by the largest rank
  bool fits = false;
};

struct TrialOptions {
  PlanOptions plan;
  int64_t device_bytes = 0;  // that the allocator may take: the GPU's without the libraries'
};

// `plan` is of `config`. Each remedy alone; where none suffices, all those together that need no
// more ranks.
std::vector<Trial> try_remedies(const RunConfig& config, const RunPlan& plan,
                                const TrialOptions& options,
                                const std::function<void(const std::string& flags)>& progress = {});

}  // namespace phx
