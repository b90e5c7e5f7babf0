#include "core/pack_intervals.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace phx {

namespace {

bool together(const Interval& a, const Interval& b) {
  if (a.lane != 0 || b.lane != 0) return true;
  return a.begin < b.end && b.begin < a.end;
}

}  // namespace

Packing pack_intervals(const std::vector<Interval>& intervals) {
  Packing packing;
  packing.offsets.assign(intervals.size(), -1);
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].size > intervals[b].size; });

  std::vector<size_t> placed;  // sorted by offset
  for (size_t i : order) {
    const Interval& item = intervals[i];
    if (item.end < 0) continue;
    int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), top = 0;
    for (size_t j : placed) {
      if (!together(item, intervals[j])) continue;
      const int64_t gap = packing.offsets[j] - top;
      if (gap >= item.size && gap < best_gap) {
        best = top;
        best_gap = gap;
      }
      top = std::max(top, packing.offsets[j] + intervals[j].size);
    }
    const int64_t offset = best >= 0 ? best : top;
    packing.offsets[i] = offset;
    packing.total = std::max(packing.total, offset + item.size);
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), offset,
                         [&](int64_t value, size_t j) { return value < packing.offsets[j]; });
    placed.insert(at, i);
  }
  return packing;
}

}  // namespace phx
