// A box of a tensor that lies whole and row-major in memory or in a mapped file.
#pragma once

#include <string>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

// `whole` -> `out`, dense. `where` names file and tensor in an error about a box that does not fit.
void copy_box(std::span<const std::byte> whole, const TensorInfo& info, const Box& box,
              std::span<std::byte> out, const std::string& where);

}  // namespace phx
