// Conversations of different lengths into samples of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace phx {

enum class PackMethod {
  none,                  // one a sample
  in_order,              // a sample takes conversations as they come until one does not fit
  first_fit_decreasing,  // the longest first, each into the first sample that has room
};

// Which items go into which sample.
struct Packs {
  std::vector<int32_t> items;   // sample after sample
  std::vector<int64_t> starts;  // [samples + 1]: sample i has items[starts[i] .. starts[i + 1])

  int64_t size() const { return int64_t(starts.size()) - 1; }
  std::span<const int32_t> pack(int64_t sample) const {
    return std::span(items).subspan(size_t(starts[size_t(sample)]),
                                    size_t(starts[size_t(sample) + 1] - starts[size_t(sample)]));
  }
};

// Every length is 1 to `capacity`. The same input gives the same packs everywhere.
Packs pack(std::span<const int32_t> lengths, int64_t capacity, PackMethod method);

// The share of all places in the samples that no item takes: 0 to 1.
double padding_share(const Packs& packs, std::span<const int32_t> lengths, int64_t capacity);

}  // namespace phx
