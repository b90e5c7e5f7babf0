#include "phalanx/data/sample_order.h"

#include <bit>

#include "phalanx/base/error.h"
#include "phalanx/data/split_mix.h"

namespace phx {
namespace {

// With few bits a half, a round mixes little; eight rounds make all orders of tiny sets appear
// about equally often (see the test).
constexpr int kRounds = 8;

}  // namespace

SampleOrder::SampleOrder(uint64_t seed, int64_t num_samples)
    : seed_(seed), num_samples_(num_samples) {
  PHX_CHECK(num_samples > 0, "there are no samples to put in order");
  const int bits = std::bit_width(static_cast<uint64_t>(num_samples - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
}

int64_t SampleOrder::at(int64_t index) const {
  PHX_ASSERT(index >= 0, "index ", index);
  const uint64_t epoch = static_cast<uint64_t>(index / num_samples_);
  const uint64_t key = mix64(mix64(seed_) + epoch);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;

  // A Feistel network is a bijection of the numbers below 4^half_bits whatever its round function
  // is. Those are less than 4 * num_samples + 4, so walking on until one falls below num_samples
  // takes few turns, and ends, since the walk is on a cycle that holds the start.
  uint64_t value = static_cast<uint64_t>(index % num_samples_);
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t mixed = mix64(key ^ mix64(right + (static_cast<uint64_t>(round) << 56)));
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    value = left << half_bits_ | right;
  } while (value >= static_cast<uint64_t>(num_samples_));
  return static_cast<int64_t>(value);
}

}  // namespace phx
