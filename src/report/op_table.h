// Where the time of a step went, kernel by kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "phalanx/core/op_trace.h"

namespace phx {

// Time by kernel, for people: the longest first, at most `lines` of them. What is left of a step is
// gaps and what is no kernel (copies, clearing).
std::string op_table(const std::vector<OpRecord>& records, int64_t steps, double step_ms,
                     size_t lines);

}  // namespace phx
