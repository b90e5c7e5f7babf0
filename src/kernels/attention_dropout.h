// Which attention weights dropout keeps, on every device: a function of global indices.
//
// One call of Philox decides 16 keys of a query, a byte each: a weight is dropped if its byte is
// below a threshold, so probabilities are multiples of 1/256. The 16 are those of 64 keys that one
// thread of the tensor cores' m16n8k16 holds: key 64 i + 8 j + 2 c + e is byte 2 j + e of call
// 4 i + c. So a fast kernel needs one call for every 16 weights, and no exchange between threads.
#pragma once

#include <algorithm>
#include <cmath>

#include "phalanx/core/philox.h"

namespace phx::kernels {

inline constexpr int kDropoutKeys = 64;  // that four calls decide

// Of 256. No dropout is 0; any other is at least 1.
inline uint32_t attention_dropout_threshold(double p) {
  return p > 0 ? uint32_t(std::clamp(std::lround(p * 256), 1l, 255l)) : 0u;
}
// What becomes of p.
inline double attention_dropout_probability(double p) {
  return attention_dropout_threshold(p) / 256.0;
}
inline double attention_dropout_scale(double p) {
  return 1 / (1 - attention_dropout_probability(p));
}

PHX_HD uint32_t dropout_call(int64_t key) { return uint32_t(key / kDropoutKeys * 4 + key % 8 / 2); }
PHX_HD int dropout_bit(int64_t key) { return int(key % kDropoutKeys / 8 * 2 + key % 2); }

// The decisions of a call: bit i is set if byte i keeps its weight.
PHX_HD uint32_t kept_bits(const Philox4& random, uint32_t threshold) {
  uint32_t kept = 0;
#ifdef __CUDA_ARCH__
  const uint32_t thresholds = threshold * 0x01010101u;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    // A one in every byte that is kept; the product lines the four up at the top.
    const uint32_t bytes = __vcmpgeu4(random.x[word], thresholds) & 0x01010101u;
    kept |= (bytes * 0x10204080u) >> 28 << (4 * word);
  }
#else
  for (int byte = 0; byte < 16; ++byte)
    if ((random.x[byte / 4] >> (8 * (byte % 4)) & 0xffu) >= threshold) kept |= 1u << byte;
#endif
  return kept;
}

}  // namespace phx::kernels
