#include "phalanx/core/pack_intervals.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace phx {

namespace {

struct Range {
  int64_t begin, end;
};

// A union of ranges, kept sorted and coalesced. Neighbours in a good packing touch, so a set of
// hundreds of blocks is a handful of ranges: that is what makes the index below fast.
class RangeUnion {
 public:
  void add(Range range) {
    const auto first =
        std::lower_bound(ranges_.begin(), ranges_.end(), range.begin,
                         [](const Range& r, int64_t begin) { return r.end < begin; });
    auto last = first;
    for (; last != ranges_.end() && last->begin <= range.end; ++last) {
      range.begin = std::min(range.begin, last->begin);
      range.end = std::max(range.end, last->end);
    }
    if (first == last) {
      ranges_.insert(first, range);
      return;
    }
    *first = range;
    ranges_.erase(first + 1, last);
  }
  void append_to(std::vector<Range>& out) const {
    out.insert(out.end(), ranges_.begin(), ranges_.end());
  }

 private:
  std::vector<Range> ranges_;
};

// Which bytes are taken at which times: a segment tree over time. A node's `throughout` are the
// bytes of blocks that live all of its span, its `ever` those of blocks that live in any part of
// it.
class Occupancy {
 public:
  explicit Occupancy(size_t num_times)
      : num_leaves_(std::bit_ceil(std::max<size_t>(num_times, 1))), nodes_(2 * num_leaves_) {}

  void take(size_t first, size_t last, Range bytes) {  // the times first .. last - 1
    take(1, 0, num_leaves_, first, last, bytes);
  }
  // Appends all that is taken at any of the times first .. last - 1; the ranges may overlap.
  void taken(size_t first, size_t last, std::vector<Range>& out) const {
    taken(1, 0, num_leaves_, first, last, out);
  }

 private:
  struct Node {
    RangeUnion throughout, ever;
  };

  void take(size_t node, size_t begin, size_t end, size_t first, size_t last, Range bytes) {
    nodes_[node].ever.add(bytes);
    if (first <= begin && end <= last) {
      nodes_[node].throughout.add(bytes);
      return;
    }
    const size_t middle = (begin + end) / 2;
    if (first < middle) take(2 * node, begin, middle, first, last, bytes);
    if (last > middle) take(2 * node + 1, middle, end, first, last, bytes);
  }

  void taken(size_t node, size_t begin, size_t end, size_t first, size_t last,
             std::vector<Range>& out) const {
    if (first <= begin && end <= last) {
      nodes_[node].ever.append_to(out);
      return;
    }
    nodes_[node].throughout.append_to(out);
    const size_t middle = (begin + end) / 2;
    if (first < middle) taken(2 * node, begin, middle, first, last, out);
    if (last > middle) taken(2 * node + 1, middle, end, first, last, out);
  }

  size_t num_leaves_;
  std::vector<Node> nodes_;
};

// The begin of the smallest gap of at least `size` bytes between the taken ranges, or their top.
int64_t best_fit(std::vector<Range>& taken, int64_t size) {
  std::sort(taken.begin(), taken.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  int64_t best = -1, best_gap = std::numeric_limits<int64_t>::max(), top = 0;
  for (const Range& range : taken) {
    const int64_t gap = range.begin - top;
    if (gap >= size && gap < best_gap) {
      best = top;
      best_gap = gap;
    }
    top = std::max(top, range.end);
  }
  return best >= 0 ? best : top;
}

}  // namespace

Packing pack_intervals(const std::vector<Interval>& intervals) {
  Packing packing;
  packing.offsets.assign(intervals.size(), -1);

  // What other lanes use shares with nobody: end to end at the bottom, no search needed.
  int64_t bottom = 0;
  std::vector<size_t> order;
  std::vector<int64_t> begins;
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& item = intervals[i];
    if (item.end < 0) continue;
    if (item.lane != 0) {
      packing.offsets[i] = bottom;
      bottom += item.size;
    } else {
      order.push_back(i);
      begins.push_back(item.begin);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].size > intervals[b].size; });

  // Two intervals live together if and only if one of them begins while the other lives, so the
  // times that matter are the begins.
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  const auto rank = [&](int64_t time) {
    return size_t(std::lower_bound(begins.begin(), begins.end(), time) - begins.begin());
  };

  Occupancy occupancy(begins.size());
  std::vector<Range> taken;
  packing.total = bottom;
  for (size_t i : order) {
    const Interval& item = intervals[i];
    const size_t first = rank(item.begin), last = std::max(first + 1, rank(item.end));
    taken.clear();
    occupancy.taken(first, last, taken);
    const int64_t offset = best_fit(taken, item.size);
    occupancy.take(first, last, {offset, offset + item.size});
    packing.offsets[i] = bottom + offset;
    packing.total = std::max(packing.total, bottom + offset + item.size);
  }
  return packing;
}

}  // namespace phx
