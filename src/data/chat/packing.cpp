#include "phalanx/data/chat/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "phalanx/base/error.h"

namespace phx {
namespace {

// The room left in every sample, as a tree of maxima: the first sample with enough of it is found
// in log(n) steps. A million conversations are packed in well under a second.
class Rooms {
 public:
  Rooms(size_t samples, int64_t capacity)
      : leaves_(std::bit_ceil(std::max<size_t>(1, samples))), most_(2 * leaves_, capacity) {}

  size_t take(int64_t length) {
    size_t node = 1;
    while (node < leaves_) node = most_[2 * node] >= length ? 2 * node : 2 * node + 1;
    const size_t sample = node - leaves_;
    most_[node] -= length;
    for (node /= 2; node >= 1; node /= 2)
      most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    return sample;
  }

 private:
  size_t leaves_;
  std::vector<int64_t> most_;
};

std::vector<size_t> first_fit_decreasing(std::span<const int32_t> lengths, int64_t capacity) {
  std::vector<int32_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int32_t a, int32_t b) { return lengths[size_t(a)] > lengths[size_t(b)]; });
  Rooms rooms(lengths.size(), capacity);
  std::vector<size_t> sample(lengths.size());
  for (const int32_t item : order) sample[size_t(item)] = rooms.take(lengths[size_t(item)]);
  return sample;
}

std::vector<size_t> in_order(std::span<const int32_t> lengths, int64_t capacity, bool alone) {
  std::vector<size_t> sample(lengths.size());
  size_t current = 0;
  int64_t used = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (used > 0 && (alone || used + lengths[i] > capacity)) {
      ++current;
      used = 0;
    }
    sample[i] = current;
    used += lengths[i];
  }
  return sample;
}

}  // namespace

Packs pack(std::span<const int32_t> lengths, int64_t capacity, PackMethod method) {
  for (const int32_t length : lengths)
    PHX_CHECK(length >= 1 && length <= capacity, "an item of ", length,
              " tokens cannot be packed into samples of ", capacity);
  const std::vector<size_t> sample =
      method == PackMethod::first_fit_decreasing
          ? first_fit_decreasing(lengths, capacity)
          : in_order(lengths, capacity, /*alone=*/method == PackMethod::none);
  const size_t samples = sample.empty() ? 0 : *std::ranges::max_element(sample) + 1;
  Packs packs;
  packs.starts.assign(samples + 1, 0);
  for (const size_t place : sample) ++packs.starts[place + 1];
  std::partial_sum(packs.starts.begin(), packs.starts.end(), packs.starts.begin());
  // Within a sample, items stand in the order they came in.
  std::vector<int64_t> next(packs.starts.begin(), packs.starts.end() - 1);
  packs.items.resize(lengths.size());
  for (size_t i = 0; i < sample.size(); ++i) packs.items[size_t(next[sample[i]]++)] = int32_t(i);
  return packs;
}

double padding_share(const Packs& packs, std::span<const int32_t> lengths, int64_t capacity) {
  if (packs.size() == 0) return 0;
  const int64_t used = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  return 1 - double(used) / (double(packs.size()) * double(capacity));
}

}  // namespace phx
