// Whether weights are their fp32 masters rounded: the rule by which state and weights belong
// together, in every form of checkpoint.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "phalanx/core/dtype.h"

namespace phx {

// The first weight that its master does not round to. Some Adams keep the bits beyond bf16 and do
// not round to nearest even, so 16-bit weights may be off by a whole last place; fp32 weights are
// their masters.
struct MasterMisfit {
  size_t index;
  float weight, master;
};
std::optional<MasterMisfit> master_misfit(DType dtype, std::span<const std::byte> weights,
                                          std::span<const float> masters);

}  // namespace phx
