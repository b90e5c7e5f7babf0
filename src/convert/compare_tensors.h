// Two sources, tensor by tensor: names, shapes, and how far the numbers are apart.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace phx {

struct TensorDifference {
  std::string name;
  int64_t elements = 0, differing = 0;
  double largest = 0;  // |a - b|; infinite where only one of them is a number
  double scale = 0;    // max |b|
};

struct Comparison {
  std::vector<std::string> only_a, only_b;
  std::vector<std::string> shapes;        // "name: [2, 3] and [3, 2]"
  std::vector<TensorDifference> tensors;  // of the same shape, by name
  bool equal() const;                     // to the last number
  const TensorDifference* worst() const;  // null when no tensor is common to both
};

// Types may differ: numbers are compared as doubles. Memory: a slab of one tensor.
Comparison compare_tensors(const TensorSource& a, const TensorSource& b);

}  // namespace phx
