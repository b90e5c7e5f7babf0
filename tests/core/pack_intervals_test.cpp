#include "phalanx/core/pack_intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <map>
#include <vector>

#include "phalanx/core/philox.h"

namespace phx {
namespace {

TEST(PackIntervals, NeverOverlapsWhatLivesTogetherAndReusesTheRest) {
  std::vector<Interval> intervals;
  int64_t everything = 0;
  for (int i = 0; i < 300; ++i) {
    const Philox4 r = philox4x32(7, i, 0, 0, 0);
    const int64_t begin = r.x[0] % 1000, size = 256 * (1 + r.x[1] % 64);
    intervals.push_back({size, begin, begin + 1 + r.x[2] % 50, 0});
    everything += size;
  }
  const Packing packing = pack_intervals(intervals);
  for (size_t i = 0; i < intervals.size(); ++i) {
    EXPECT_LE(packing.offsets[i] + intervals[i].size, packing.total);
    for (size_t j = 0; j < i; ++j) {
      const bool in_time =
          intervals[i].begin < intervals[j].end && intervals[j].begin < intervals[i].end;
      const bool in_space = packing.offsets[i] < packing.offsets[j] + intervals[j].size &&
                            packing.offsets[j] < packing.offsets[i] + intervals[i].size;
      EXPECT_FALSE(in_time && in_space) << i << " and " << j;
    }
  }
  int64_t floor = 0;  // the most that lives at one time
  for (int64_t t = 0; t < 1100; ++t) {
    int64_t live = 0;
    for (const auto& x : intervals) live += x.begin <= t && t < x.end ? x.size : 0;
    floor = std::max(floor, live);
  }
  EXPECT_LE(packing.total, floor * 5 / 4) << "more than a quarter is lost to fragmentation";
  EXPECT_LT(packing.total, everything / 4);
}

// The most bytes that live at one time. Ends are exclusive.
int64_t floor_of(const std::vector<Interval>& intervals) {
  std::map<int64_t, int64_t> change;
  for (const Interval& x : intervals) {
    change[x.begin] += x.size;
    change[x.end] -= x.size;
  }
  int64_t live = 0, most = 0;
  for (const auto& [time, bytes] : change) most = std::max(most, live += bytes);
  return most;
}

// Sweeps over time with the living blocks sorted by offset: a new one must fit between neighbours.
void expect_no_overlap(const std::vector<Interval>& intervals, const Packing& packing) {
  std::map<int64_t, std::vector<size_t>> begins, ends;
  for (size_t i = 0; i < intervals.size(); ++i) {
    begins[intervals[i].begin].push_back(i);
    ends[intervals[i].end].push_back(i);
  }
  std::map<int64_t, int64_t> alive;  // offset -> end of its bytes
  for (const auto& [time, starting] : begins) {
    for (; !ends.empty() && ends.begin()->first <= time; ends.erase(ends.begin())) {
      for (size_t i : ends.begin()->second) alive.erase(packing.offsets[i]);
    }
    for (size_t i : starting) {
      const int64_t begin = packing.offsets[i], end = begin + intervals[i].size;
      ASSERT_GE(begin, 0);
      ASSERT_LE(end, packing.total);
      const auto next = alive.lower_bound(begin);
      ASSERT_TRUE(next == alive.end() || next->first >= end) << i;
      ASSERT_TRUE(next == alive.begin() || std::prev(next)->second <= begin) << i;
      alive[begin] = end;
    }
  }
}

// Micro-batches one after another; in each the layers allocate going forward, a third of that
// released within its layer, and release going backward, with short-lived gradients.
std::vector<Interval> step_of(int64_t layers, int64_t per_layer, int64_t micro_batches) {
  constexpr int64_t kUnit = 1 << 20;
  const int64_t sizes[] = {16, 16, 1, 24, 8, 16, 43, 43, 16, 2};
  std::vector<Interval> intervals;
  int64_t time = 0;
  const auto begin = [&](int64_t size) {
    intervals.push_back({size, time++, -1, 0});
    return intervals.size() - 1;
  };
  const auto end = [&](size_t i) { intervals[i].end = time++; };
  for (int64_t m = 0; m < micro_batches; ++m) {
    std::vector<size_t> saved;
    for (int64_t l = 0; l < layers; ++l) {
      for (int64_t k = 0; k < per_layer * 2 / 3; ++k) {
        const size_t i = begin(kUnit * sizes[k % 10]);
        if (k % 2 == 1)
          end(i);
        else
          saved.push_back(i);
      }
    }
    size_t upper = begin(kUnit * 16);
    for (int64_t l = layers; l-- > 0;) {
      for (int64_t k = 0; k < per_layer / 3; ++k) {
        const size_t gradient = begin(kUnit * sizes[(k + l) % 10]);
        end(upper);
        upper = gradient;
        end(saved.back());
        saved.pop_back();
      }
    }
    end(upper);
  }
  return intervals;
}

// Of this thread: on a busy machine the clock on the wall says little.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

TEST(PackIntervals, PacksAStepOf92ThousandAllocationsInSeconds) {
  const std::vector<Interval> intervals = step_of(32, 45, 64);
  ASSERT_GT(intervals.size(), 90'000u);
  const double start = cpu_seconds();
  const Packing packing = pack_intervals(intervals);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kMost = 30;  // ten times as slow
#else
  constexpr double kMost = 5;
#endif
  EXPECT_LT(cpu_seconds() - start, kMost)
      << "a quarter of a second is usual, comparing all pairs takes 14";
  expect_no_overlap(intervals, packing);
  EXPECT_LE(packing.total, floor_of(intervals) * 11 / 10);
}

// What the index must agree with: every placed interval is compared with every other.
Packing pack_by_all_pairs(const std::vector<Interval>& intervals) {
  Packing packing;
  packing.offsets.assign(intervals.size(), -1);
  std::vector<size_t> order(intervals.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].size > intervals[b].size; });
  std::vector<size_t> placed;
  for (size_t i : order) {
    const Interval& item = intervals[i];
    std::sort(placed.begin(), placed.end(),
              [&](size_t a, size_t b) { return packing.offsets[a] < packing.offsets[b]; });
    int64_t best = -1, best_gap = INT64_MAX, top = 0;
    for (size_t j : placed) {
      if (item.begin >= intervals[j].end || intervals[j].begin >= item.end) continue;
      const int64_t gap = packing.offsets[j] - top;
      if (gap >= item.size && gap < best_gap) {
        best = top;
        best_gap = gap;
      }
      top = std::max(top, packing.offsets[j] + intervals[j].size);
    }
    packing.offsets[i] = best >= 0 ? best : top;
    packing.total = std::max(packing.total, packing.offsets[i] + item.size);
    placed.push_back(i);
  }
  return packing;
}

TEST(PackIntervals, PlacesEachExactlyWhereComparingAllPairsWould) {
  for (uint32_t round = 0; round < 20; ++round) {
    std::vector<Interval> intervals;
    for (uint32_t i = 0; i < 40 + 10 * round; ++i) {
      const Philox4 r = philox4x32(11, i, round, 0, 0);
      const int64_t begin = r.x[0] % 400, longest = i % 7 == 0 ? 300 : 20;
      intervals.push_back({256 * (1 + r.x[1] % 32), begin, begin + 1 + r.x[2] % longest, 0});
    }
    const Packing packing = pack_intervals(intervals), expected = pack_by_all_pairs(intervals);
    EXPECT_EQ(packing.offsets, expected.offsets) << round;
    EXPECT_EQ(packing.total, expected.total) << round;
  }
}

TEST(PackIntervals, OtherStreamsShareWithNobodyAndTheUnreleasedAreLeftOut) {
  const Packing packing = pack_intervals(
      {{512, 0, 1, 1}, {256, 2, 3, 1}, {1024, 4, 5, 0}, {1024, 6, 7, 0}, {9, 8, -1, 0}});
  EXPECT_EQ(packing.offsets, (std::vector<int64_t>{0, 512, 768, 768, -1}));
  EXPECT_EQ(packing.total, 768 + 1024);
}

TEST(PackIntervals, TakesTheSmallestGapThatFitsAndTheLowestOfEqualOnes) {
  // Three that live all the time with gaps of 300, 200 and 200 bytes between them; the gaps were
  // held by others that are gone at time 10.
  std::vector<Interval> intervals = {{1000, 0, 20, 0}, {900, 0, 20, 0}, {800, 0, 20, 0}};
  const Packing stacked = pack_intervals(intervals);
  EXPECT_EQ(stacked.offsets, (std::vector<int64_t>{0, 1000, 1900}));

  intervals = {{1000, 0, 20, 0},  // at 0
               {300, 0, 10, 0},   // at 1000, a gap later
               {299, 0, 20, 0},   // at 1300
               {200, 0, 10, 0},   // at 1599, a gap later
               {199, 0, 20, 0},   // at 1799
               {198, 0, 10, 0},   // at 1998
               {150, 11, 20, 0},  // the gap of 200 is smaller than that of 300
               {50, 11, 20, 0}};  // the 50 bytes that are left of it
  const Packing packing = pack_intervals(intervals);
  EXPECT_EQ(packing.offsets, (std::vector<int64_t>{0, 1000, 1300, 1599, 1799, 1998, 1599, 1749}));
  EXPECT_EQ(packing.total, 1998 + 198);
}

TEST(PackIntervals, ABlockThatBeginsWhenAnotherEndsMayHaveItsBytes) {
  EXPECT_EQ(pack_intervals({{512, 0, 4, 0}, {512, 4, 5, 0}}).total, 512);
  EXPECT_EQ(pack_intervals({{512, 0, 5, 0}, {512, 4, 6, 0}}).total, 1024);
  EXPECT_EQ(pack_intervals({}).total, 0);
}

}  // namespace
}  // namespace phx
