// Packs allocations with known lifetimes into one arena.
#pragma once

#include <cstdint>
#include <vector>

namespace phx {

struct Interval {
  int64_t size;
  int64_t begin;
  int64_t end;   // -1: never released within the step, so not packed
  uint8_t lane;  // its stream: only intervals of lane 0 (compute) reuse each other's memory,
                 // because only there does program order say that the first use is over
};

struct Packing {
  std::vector<int64_t> offsets;  // one per interval; -1: not packed
  int64_t total = 0;             // bytes of the arena
};

// Large ones first, each into the smallest gap between those that live at the same time, the lowest
// of equal gaps; what fits into none goes on top. A pure function of its input. For a training
// step's pattern the time is about n log n.
Packing pack_intervals(const std::vector<Interval>& intervals);

}  // namespace phx
