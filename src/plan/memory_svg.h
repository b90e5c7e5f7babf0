// A plan as a picture: a bar for each kind of rank, its memory at the peak stacked by purpose.
#pragma once

#include <cstdint>
#include <string>

#include "phalanx/plan/run_plan.h"

namespace phx {

struct MemoryPicture {
  std::string title;
  int64_t device_bytes = 0;  // drawn as a line; 0: none
};

std::string draw_memory(const RunPlan& plan, const MemoryPicture& picture);

}  // namespace phx
