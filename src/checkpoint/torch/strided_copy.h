// Boxes of tensors between memories of different layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

using Dims = std::vector<int64_t>;

// "[4, 2]"
std::string text_of(const Dims& dims);

Dims dense_strides(const Dims& shape);  // in elements, row-major

// The product; nothing where it is absurdly large or a dimension is negative.
std::optional<int64_t> num_elements(const Dims& shape);

// Throws unless `box` lies within `shape` and fills `bytes` exactly; `where` names file and tensor.
void check_box(const std::string& where, const TensorInfo& info, const Box& box, size_t bytes);

bool overlap(const Box& a, const Box& b);  // of the same rank
// What two boxes share; nothing if they do not overlap.
std::optional<Box> intersection(const Box& a, const Box& b);

struct StridedBytes {
  std::byte* first;  // of element [0, 0, ..]
  const Dims& strides;
};
struct ConstStridedBytes {
  const std::byte* first;
  const Dims& strides;
};

// sizes[0] x sizes[1] x .. elements of `element` bytes.
void copy_strided(ConstStridedBytes from, StridedBytes to, const Dims& sizes, int64_t element);

}  // namespace phx
