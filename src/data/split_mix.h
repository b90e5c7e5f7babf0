// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014): integer
// arithmetic only, so the same numbers on every machine.
#pragma once

#include <cstdint>

#include "phalanx/core/philox.h"

namespace phx {

class SplitMix {
 public:
  explicit constexpr SplitMix(uint64_t seed) : state_(seed) {}

  uint64_t next() { return mix64(state_ += 0x9e3779b97f4a7c15u); }

  // One of 0 .. n - 1. From the upper 32 bits: off by 2^-32 from uniform at most, for n < 2^32.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(((next() >> 32) * n) >> 32); }

  bool one_in(uint32_t n) { return below(n) == 0; }

 private:
  uint64_t state_;
};

}  // namespace phx
