// The order in which samples are seen: a pure function of (seed, index). No index array is kept,
// nothing needs to be saved, and any rank can ask for any index at any time.
#pragma once

#include <cstdint>

namespace phx {

class SampleOrder {
 public:
  // Epoch after epoch of all `num_samples` samples, each epoch in a new order.
  SampleOrder(uint64_t seed, int64_t num_samples);

  // The sample at place `index` = 0, 1, 2, ... of the endless order.
  int64_t at(int64_t index) const;

 private:
  uint64_t seed_;
  int64_t num_samples_;
  int half_bits_;
};

}  // namespace phx
