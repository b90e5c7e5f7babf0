#include "phalanx/data/numpy_random.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr int kShift = 397;  // how far apart the words are that are mixed
constexpr uint32_t kUpper = 0x80000000u, kTwist = 0x9908b0dfu;

uint32_t twisted(uint32_t upper, uint32_t lower, uint32_t far) {
  const uint32_t y = (upper & kUpper) | (lower & ~kUpper);
  return far ^ y >> 1 ^ ((y & 1) != 0 ? kTwist : 0);
}

uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

// Swaps of a shuffle are drawn so many at a time: a swap's far end is fetched while the block
// before is swapped, or every swap of a large array would wait for memory.
constexpr int64_t kBlock = 256;

}  // namespace

MersenneTwister::MersenneTwister(uint32_t seed) {
  state_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
}

void MersenneTwister::refill() {
  // Vectors of eight words never reach a word that the same vector makes: the nearest is 227 away.
  uint32_t* s = state_.data();
#pragma omp simd safelen(8)
  for (int i = 0; i < kWords - kShift; ++i) s[i] = twisted(s[i], s[i + 1], s[i + kShift]);
#pragma omp simd safelen(8)
  for (int i = kWords - kShift; i < kWords - 1; ++i)
    s[i] = twisted(s[i], s[i + 1], s[i + kShift - kWords]);
  s[kWords - 1] = twisted(s[kWords - 1], s[0], s[kShift - 1]);
  for (int i = 0; i < kWords; ++i) words_[i] = tempered(s[i]);
  at_ = 0;
}

void MersenneTwister::draw_falling(uint32_t most, std::span<uint32_t> out) {
  size_t made = 0;
  while (made < out.size()) {
    const uint32_t mask = std::numeric_limits<uint32_t>::max() >> std::countl_zero(most);
    // The bound has this many bits for so many draws.
    const size_t end = std::min<size_t>(out.size(), made + (most - (mask >> 1)));
    while (made < end) {  // without a branch on what was drawn, which nothing could predict
      if (at_ == kWords) refill();
      const uint32_t value = words_[at_++] & mask;
      out[made] = value;
      const uint32_t taken = value <= most;
      made += taken;
      most -= taken;
    }
  }
}

uint64_t NumpyRandomState::interval(uint64_t most) {
  if (most == 0) return 0;
  const uint64_t mask = std::numeric_limits<uint64_t>::max() >> std::countl_zero(most);
  const bool narrow = most <= std::numeric_limits<uint32_t>::max();
  while (true) {
    const uint64_t value = (narrow ? twister_.next() : twister_.next_wide()) & mask;
    if (value <= most) return value;
  }
}

template <class T>
void NumpyRandomState::shuffle(std::span<T> values) {
  int64_t i = int64_t(values.size()) - 1;
  for (; i > int64_t{std::numeric_limits<uint32_t>::max()}; --i)
    std::swap(values[size_t(i)], values[interval(uint64_t(i))]);
  std::array<uint32_t, kBlock> blocks[2];
  int64_t waiting = 0;  // swaps of the other block, from waiting_at downwards
  int64_t waiting_at = 0;
  int now = 0;
  while (i >= 1 || waiting > 0) {
    const int64_t count = std::min(kBlock, std::max<int64_t>(i, 0));
    const auto targets = std::span(blocks[now]).first(size_t(count));
    twister_.draw_falling(uint32_t(std::max<int64_t>(i, 0)), targets);
    for (const uint32_t target : targets) __builtin_prefetch(values.data() + target, 1);
    for (int64_t k = 0; k < waiting; ++k)
      std::swap(values[size_t(waiting_at - k)], values[blocks[1 - now][size_t(k)]]);
    waiting = count;
    waiting_at = i;
    i -= count;
    now = 1 - now;
  }
}

template void NumpyRandomState::shuffle(std::span<int32_t>);
template void NumpyRandomState::shuffle(std::span<uint32_t>);
template void NumpyRandomState::shuffle(std::span<int64_t>);

std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed) {
  if (n >= kLongPermutation) return torch_long_randperm(n, seed);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  MersenneTwister twister{uint32_t(seed)};
  for (int64_t i = 0; i + 1 < n; ++i)
    std::swap(order[size_t(i)], order[size_t(i) + twister.next() % uint32_t(n - i)]);
  return order;
}

std::vector<int64_t> torch_long_randperm(int64_t n, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  MersenneTwister twister{uint32_t(seed)};
  for (int64_t i = 0; i < n; ++i) {
    const auto place = size_t(twister.next_wide() % uint64_t(i + 1));
    order[size_t(i)] = order[place];
    order[place] = i;
  }
  return order;
}

}  // namespace phx
