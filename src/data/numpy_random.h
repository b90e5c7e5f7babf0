// The generators behind Megatron's orders, number for number: NumPy's legacy RandomState, which
// shuffles documents and samples, and torch.randperm, which the cyclic order takes. Both stand on
// the Mersenne Twister MT19937 (Matsumoto, Nishimura 1998) with Knuth's seeding.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace phx {

class MersenneTwister {
 public:
  explicit MersenneTwister(uint32_t seed);

  uint32_t next() {
    if (at_ == kWords) refill();
    return words_[at_++];
  }
  // Of two words, the first is the upper one.
  uint64_t next_wide() {
    const uint64_t high = next();
    return high << 32 | next();
  }

  // out[k] in 0 .. most - k, as RandomState draws them one after the other: words are cut to the
  // bits of the bound, and those above it are drawn again. most < 2^32, out.size() <= most.
  void draw_falling(uint32_t most, std::span<uint32_t> out);

 private:
  static constexpr int kWords = 624;
  void refill();

  std::array<uint32_t, kWords> state_, words_;  // words_: what goes out, made for all at once
  int at_ = kWords;
};

// numpy.random.RandomState(seed), as far as Megatron asks it.
class NumpyRandomState {
 public:
  explicit NumpyRandomState(uint32_t seed) : twister_(seed) {}

  uint64_t interval(uint64_t most);  // in 0 .. most, both included
  template <class T>                 // i32, u32 and i64
  void shuffle(std::span<T> values);

 private:
  MersenneTwister twister_;
};

extern template void NumpyRandomState::shuffle(std::span<int32_t>);
extern template void NumpyRandomState::shuffle(std::span<uint32_t>);
extern template void NumpyRandomState::shuffle(std::span<int64_t>);

// torch.randperm(n) of a CPU generator seeded with `seed`. From kLongPermutation on PyTorch draws
// 64 bits for every place and fills the order from its beginning, because a remainder of 32 bits
// would favour small numbers.
inline constexpr int64_t kLongPermutation = 0xffffffff / 20;
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);
std::vector<int64_t> torch_long_randperm(int64_t n, uint64_t seed);  // this way at any n

}  // namespace phx
