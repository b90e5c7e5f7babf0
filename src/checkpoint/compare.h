// What is in tensors, without holding more than some MiB of them: statistics of one, differences of
// two.
#pragma once

#include <string>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"

namespace phx {

struct TensorStatistics {
  double least = 0, most = 0, mean = 0, deviation = 0;  // of the finite elements
  int64_t zeros = 0, not_finite = 0;
};
TensorStatistics statistics(const TensorSource& source, const std::string& name);

struct TensorDifference {
  std::string name;
  std::string what;    // "only in A", "F32 [3] and BF16 [3]", "12 of 40 elements"
  double largest = 0;  // of |a - b|, where they have elements in common; infinity for a nan
};
// Of every tensor that is not the same, bit for bit, in both; in the order of names.
std::vector<TensorDifference> differences(const TensorSource& a, const TensorSource& b);

}  // namespace phx
