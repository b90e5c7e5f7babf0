#include "core/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "core/pack_intervals.h"
#include "core/philox.h"
#include "core/tensor.h"

namespace phx {
namespace {

int64_t of(const BytesByPurpose& bytes, Purpose purpose) {
  return bytes[static_cast<size_t>(purpose)];
}

TEST(Allocator, ChargesEachAllocationToItsPurpose) {
  Runtime runtime;
  const Tensor a = empty({1000}, DType::f32, runtime.device(), Purpose::weights);
  const Tensor b = empty({100}, DType::f64, runtime.device(), Purpose::workspace);
  const MemoryReport report = runtime.allocator().report();
  EXPECT_EQ(of(report.live, Purpose::weights), 4096);  // 4000 rounded up to 256
  EXPECT_EQ(of(report.live, Purpose::workspace), 1024);
  EXPECT_EQ(report.peak_total, 5120);
}

TEST(Allocator, ReusesAFreedBlockOfTheSameSize) {
  Runtime runtime;
  void* first = empty({1000}, DType::f32, runtime.device()).raw();
  const int64_t before = runtime.allocator().report().source_allocations;
  EXPECT_EQ(empty({1000}, DType::f32, runtime.device()).raw(), first);
  EXPECT_EQ(runtime.allocator().report().source_allocations, before);
}

TEST(Allocator, PeakRemembersWhatWasHeldForWhat) {
  Runtime runtime;
  { const Tensor a = empty({1024}, DType::f32, runtime.device(), Purpose::activations); }
  const Tensor b = empty({64}, DType::f32, runtime.device(), Purpose::weights);
  const MemoryReport report = runtime.allocator().report();
  EXPECT_EQ(of(report.at_peak, Purpose::activations), 4096);
  EXPECT_EQ(of(report.at_peak, Purpose::weights), 0);
  EXPECT_EQ(of(report.live, Purpose::activations), 0);
}

class TinySource : public MemorySource {
 public:
  void* allocate(int64_t bytes) override { return bytes > 4096 ? nullptr : std::malloc(bytes); }
  void free(void* data, int64_t) override { std::free(data); }
  int64_t available() const override { return 4096; }
};

TEST(Allocator, OutOfMemoryNamesTheHoldersAndAWayOut) {
  Allocator allocator(std::make_unique<TinySource>(), "toy");
  const Block held = allocator.allocate(2048, Purpose::activations, 0);
  try {
    allocator.allocate(1 << 20, Purpose::weights, 0);
    FAIL() << "there is no such memory";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("out of memory on toy: weights asked for 1 MiB"), std::string::npos)
        << text;
    EXPECT_NE(text.find("activations"), std::string::npos) << text;
    EXPECT_NE(text.find("--micro-batch-size"), std::string::npos) << text;
  }
  allocator.release(held);
}

// A step in miniature: nested lifetimes of several sizes.
std::vector<void*> toy_step(Runtime& runtime, int64_t width) {
  const Device device = runtime.device();
  std::vector<void*> addresses;
  const Tensor a = empty({width}, DType::f32, device);
  Tensor b = empty({2 * width}, DType::f32, device);
  addresses = {a.raw(), b.raw()};
  b = Tensor();
  const Tensor c = empty({width, 3}, DType::f32, device);
  addresses.push_back(c.raw());
  return addresses;
}

void run_toy_steps(Runtime& runtime, int n, int64_t width) {
  for (int i = 0; i < n; ++i) {
    runtime.allocator().begin_step("train");
    toy_step(runtime, width);
    runtime.allocator().end_step();
  }
}

TEST(StepArena, AfterTwoEqualStepsTheThirdReplaysInside) {
  Runtime runtime;
  run_toy_steps(runtime, 2, 1000);
  const MemoryReport packed = runtime.allocator().report();
  EXPECT_GT(packed.arena, 0);
  EXPECT_EQ(packed.replayed_steps, 0);
  run_toy_steps(runtime, 5, 1000);
  const MemoryReport after = runtime.allocator().report();
  EXPECT_EQ(after.replayed_steps, 5);
  EXPECT_EQ(after.source_allocations, packed.source_allocations) << "a steady step takes no memory";
}

TEST(StepArena, AddressesAreTheSameInEveryStep) {
  Runtime runtime;
  run_toy_steps(runtime, 2, 1000);
  std::vector<std::vector<void*>> seen;
  for (int i = 0; i < 2; ++i) {
    runtime.allocator().begin_step("train");
    seen.push_back(toy_step(runtime, 1000));
    runtime.allocator().end_step();
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(StepArena, AStepThatDiffersFallsBackAndIsRecordedAnew) {
  Runtime runtime;
  run_toy_steps(runtime, 3, 1000);
  run_toy_steps(runtime, 1, 1234);
  EXPECT_EQ(runtime.allocator().report().diverged_steps, 1);
  EXPECT_NE(runtime.allocator().last_divergence(), "");
  run_toy_steps(runtime, 3, 1234);
  EXPECT_EQ(runtime.allocator().report().replayed_steps, 2);
}

TEST(StepArena, WhatOutlivesTheStepIsNotInTheArena) {
  Runtime runtime;
  std::vector<Tensor> kept;
  for (int i = 0; i < 4; ++i) {
    runtime.allocator().begin_step("train");
    kept.push_back(zeros({512}, DType::f32, runtime.device()));
    kept.back().data<float>()[0] = float(i);
    toy_step(runtime, 100);
    runtime.allocator().end_step();
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(kept[i].data<float>()[0], float(i));
}

TEST(StepArena, ALongerLifetimeThanPlannedIsNeverOverwritten) {
  Runtime runtime;
  run_toy_steps(runtime, 3, 1000);
  runtime.allocator().begin_step("train");
  const Tensor a = zeros({1000}, DType::f32, runtime.device());
  Tensor b = zeros({2000}, DType::f32, runtime.device());  // the plan releases this one before c
  b.data<float>()[7] = 5.f;
  Tensor c = empty({1000, 3}, DType::f32, runtime.device());
  std::memset(c.raw(), 0xff, c.bytes());
  EXPECT_EQ(b.data<float>()[7], 5.f);
  b = c = Tensor();
  runtime.allocator().end_step();
  EXPECT_EQ(runtime.allocator().report().diverged_steps, 1);
}

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

}  // namespace
}  // namespace phx
