#include "phalanx/core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/core/tensor.h"

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
  run_toy_steps(runtime, 3, 1234);
  EXPECT_EQ(runtime.allocator().report().replayed_steps, 3)
      << "the step that differed counts as the first of two equal ones";
  EXPECT_EQ(runtime.allocator().report().diverged_steps, 1);
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

// A heap that ends: it gives `room` bytes at a time, fails on purpose, and counts.
struct Heap {
  int64_t room = int64_t{1} << 40;
  int64_t used = 0;
  int64_t refusals = 0, frees = 0;
  bool broken = false;
};

class LimitedSource : public MemorySource {
 public:
  explicit LimitedSource(Heap& heap) : heap_(heap) {}
  void* allocate(int64_t bytes) override {
    if (heap_.broken) throw std::runtime_error("device lost");
    if (heap_.used + bytes > heap_.room) {
      ++heap_.refusals;
      return nullptr;
    }
    heap_.used += bytes;
    return std::malloc(bytes);
  }
  void free(void* data, int64_t bytes) override {
    ++heap_.frees;
    heap_.used -= bytes;
    std::free(data);
  }
  int64_t available() const override { return heap_.room - heap_.used; }

 private:
  Heap& heap_;
};

struct Toy {
  Heap heap;
  Allocator allocator{std::make_unique<LimitedSource>(heap), "toy"};

  Block get(int64_t bytes, uint8_t stream = 0) {
    return allocator.allocate(bytes, Purpose::activations, stream);
  }
  bool in_arena(const Block& block) const { return block.reserved == 0; }
  // A step that allocates `sizes` and releases them in reverse.
  void step(const std::string& kind, const std::vector<int64_t>& sizes) {
    allocator.begin_step(kind);
    std::vector<Block> blocks;
    for (int64_t size : sizes) blocks.push_back(get(size));
    for (; !blocks.empty(); blocks.pop_back()) allocator.release(blocks.back());
    allocator.end_step();
  }
  void steps(int n, const std::string& kind, const std::vector<int64_t>& sizes) {
    for (int i = 0; i < n; ++i) step(kind, sizes);
  }
};

TEST(StepArena, AllKindsOfStepsShareOneBufferOfTheLargest) {
  Toy toy;
  toy.steps(3, "evaluate", {4096, 4096});
  EXPECT_EQ(toy.allocator.report().arena, 8192);
  toy.steps(3, "train", {4096, 4096, 8192});
  EXPECT_EQ(toy.allocator.report().arena, 16384);
  EXPECT_EQ(toy.allocator.report().reserved, 16384) << "nothing lies idle beside the arena";
  const int64_t before = toy.allocator.report().source_allocations;
  for (int i = 0; i < 3; ++i) {
    toy.steps(2, "train", {4096, 4096, 8192});
    toy.steps(2, "evaluate", {4096, 4096});
  }
  const MemoryReport report = toy.allocator.report();
  EXPECT_EQ(report.source_allocations, before);
  EXPECT_EQ(report.replayed_steps, 1 + 1 + 12);
  EXPECT_EQ(report.diverged_steps, 0);
  EXPECT_EQ(toy.heap.used, 16384);
}

TEST(StepArena, ASmallerPlanPackedLaterLeavesNoCacheBehind) {
  Toy toy;
  toy.steps(2, "train", {4096, 8192});
  toy.steps(2, "evaluate", {4096});
  EXPECT_EQ(toy.allocator.report().arena, 12288);
  EXPECT_EQ(toy.allocator.report().reserved, 12288);
}

TEST(StepArena, ShrinksWhenTheLargestPlanIsLeft) {
  Toy toy;
  toy.steps(2, "evaluate", {4096});
  toy.steps(2, "train", {4096, 8192});
  toy.step("train", {4096});
  EXPECT_EQ(toy.allocator.report().arena, 4096) << "what evaluation needs";
  toy.step("evaluate", {4096});
  EXPECT_EQ(toy.allocator.report().replayed_steps, 1);
}

TEST(StepArena, BlocksThatOutliveADivergedStepAreNeverOverwritten) {
  Toy toy;
  toy.steps(2, "train", {4096, 4096});
  toy.steps(2, "evaluate", {8192});
  toy.allocator.begin_step("train");
  const Block kept = toy.get(4096);
  ASSERT_TRUE(toy.in_arena(kept));
  std::memset(kept.data, 7, 4096);
  toy.allocator.end_step();  // the plan has more events
  EXPECT_EQ(toy.allocator.report().diverged_steps, 1);

  for (const char* kind : {"train", "evaluate", "train", "evaluate"}) {
    toy.allocator.begin_step(kind);
    const Block other = toy.get(8192);
    EXPECT_FALSE(toy.in_arena(other)) << kind;
    std::memset(other.data, 9, 8192);
    toy.allocator.release(other);
    toy.allocator.end_step();
  }
  for (int i = 0; i < 4096; ++i) ASSERT_EQ(static_cast<char*>(kept.data)[i], 7) << i;
  EXPECT_EQ(toy.allocator.report().arena, 8192) << "in use, so it stays where it is";

  toy.allocator.begin_step("evaluate");  // the last block may go in the middle of a step
  const Block other = toy.get(8192);
  toy.allocator.release(kept);
  toy.allocator.release(other);
  toy.allocator.end_step();
  const int64_t before = toy.allocator.report().replayed_steps;
  toy.step("evaluate", {8192});
  EXPECT_EQ(toy.allocator.report().replayed_steps, before + 1) << "its plan was kept";
  EXPECT_EQ(toy.allocator.report().diverged_steps, 1);
  EXPECT_EQ(of(toy.allocator.report().live, Purpose::activations), 0);
}

TEST(StepArena, SaysThatThereIsNoRoomAndDoesNotTryAgain) {
  Toy toy;
  toy.step("train", {4096, 8192});
  toy.allocator.begin_step("train");
  const Block a = toy.get(4096), b = toy.get(8192);
  toy.allocator.release(b);
  toy.allocator.release(a);
  toy.heap.room = 8192;  // somebody else takes memory
  toy.allocator.end_step();
  EXPECT_EQ(toy.allocator.report().arena, 0);
  EXPECT_EQ(toy.allocator.last_divergence(),
            "step 'train' stays with the cache: there is no room for its arena of 12288 bytes");
  EXPECT_EQ(toy.allocator.take_warnings(),
            std::vector<std::string>{toy.allocator.last_divergence()});
  toy.heap.room = 1 << 20;
  toy.step("train", {4096, 8192});
  const int64_t refusals = toy.heap.refusals, frees = toy.heap.frees;
  toy.steps(6, "train", {4096, 8192});
  EXPECT_EQ(toy.heap.refusals, refusals);
  EXPECT_EQ(toy.heap.frees, frees) << "the cache is kept";
  EXPECT_EQ(toy.allocator.report().diverged_steps, 0);
  toy.steps(3, "evaluate", {4096});
  EXPECT_EQ(toy.allocator.report().arena, 4096) << "other kinds still have their plans";
  EXPECT_EQ(toy.allocator.report().replayed_steps, 1);
}

TEST(StepArena, ALargerPlanWithoutRoomLeavesTheSmallerOneWorking) {
  Toy toy;
  toy.steps(2, "train", {4096});
  toy.heap.room = 4096 + 8192;
  toy.steps(2, "evaluate", {4096, 4096});  // from the cache, beside train's arena
  EXPECT_EQ(toy.allocator.report().arena, 8192);
  toy.heap.room = 4096;
  toy.step("other", {1024});  // finds no room, so the arena gives way and is made anew at the end
  EXPECT_EQ(toy.allocator.report().arena, 4096) << "evaluation's 8192 are given up, train's fit";
  EXPECT_NE(toy.allocator.last_divergence().find("'evaluate' stays with the cache"),
            std::string::npos);
  toy.step("train", {4096});
  EXPECT_EQ(toy.allocator.report().replayed_steps, 1);
}

TEST(StepArena, AnIdleArenaGivesWayToTheFirstStepsOfAnotherKind) {
  Toy toy;
  toy.heap.room = 10 * 4096;
  toy.steps(3, "train", std::vector<int64_t>(8, 4096));
  EXPECT_EQ(toy.allocator.report().arena, 8 * 4096);
  toy.steps(3, "evaluate", std::vector<int64_t>(4, 4096));  // only two blocks are left beside it
  toy.steps(2, "train", std::vector<int64_t>(8, 4096));
  const MemoryReport report = toy.allocator.report();
  EXPECT_EQ(report.arena, 8 * 4096);
  EXPECT_EQ(report.replayed_steps, 1 + 1 + 2);
  EXPECT_EQ(report.diverged_steps, 0);
}

TEST(StepArena, TheDivergenceNamesThePlannedAndTheActualEvent) {
  const auto text = [](auto&& step) {
    Toy toy;
    toy.steps(2, "train", {4096, 512});
    toy.allocator.begin_step("train");
    step(toy);
    toy.allocator.end_step();
    EXPECT_EQ(toy.allocator.report().diverged_steps, 1);
    return toy.allocator.last_divergence();
  };
  EXPECT_EQ(
      text([](Toy& toy) { toy.allocator.release(toy.get(8192)); }),
      "step 'train' left its plan at event 0: planned an allocation of 4096 bytes, got one of "
      "8192 bytes");
  EXPECT_EQ(
      text([](Toy& toy) { toy.allocator.release(toy.get(4096, 3)); }),
      "step 'train' left its plan at event 0: planned an allocation of 4096 bytes, got one of "
      "4096 bytes on stream 3");
  EXPECT_EQ(text([](Toy& toy) { toy.allocator.release(toy.get(4096)); }),
            "step 'train' left its plan at event 1: planned an allocation of 512 bytes, got the "
            "release of allocation 0 (4096 bytes)");
  EXPECT_EQ(text([](Toy& toy) {
              const Block a = toy.get(4096), b = toy.get(512);
              toy.allocator.release(a);
              toy.allocator.release(b);
            }),
            "step 'train' left its plan at event 2: planned the release of allocation 1 (512 "
            "bytes), got the release of allocation 0 (4096 bytes)");
  EXPECT_EQ(text([](Toy& toy) {
              for (int i = 0; i < 2; ++i) {
                const Block a = toy.get(4096), b = toy.get(512);
                toy.allocator.release(b);
                toy.allocator.release(a);
              }
            }),
            "step 'train' left its plan at event 4: planned the step's end, got an allocation of "
            "4096 bytes");
  EXPECT_EQ(text([](Toy&) {}),
            "step 'train' left its plan at event 0: planned an allocation of 4096 bytes, got the "
            "step's end");
}

TEST(StepArena, APlanThatWasExceededIsToldOnceForEachKindWithTheSizes) {
  Toy toy;
  toy.steps(3, "train", {4096, 512});
  EXPECT_TRUE(toy.allocator.take_warnings().empty());
  toy.step("train", {4096, 8192});
  EXPECT_EQ(toy.allocator.take_warnings(),
            std::vector<std::string>{
                "step 'train' left its plan at event 1: planned an allocation of 512 bytes, got "
                "one of 8192 bytes; the plan's arena has 4608 bytes, this step held up to 12288 "
                "at once, which exceeds it; it ran from the cache and is planned anew"});
  toy.steps(3, "train", {4096, 512});
  toy.step("train", {4096, 8192});
  EXPECT_EQ(toy.allocator.report().diverged_steps, 2);
  EXPECT_TRUE(toy.allocator.take_warnings().empty()) << "it was told";
  toy.steps(3, "evaluate", {1024});
  toy.step("evaluate", {512});
  const std::vector<std::string> smaller = toy.allocator.take_warnings();
  ASSERT_EQ(smaller.size(), 1u);
  EXPECT_NE(smaller[0].find("arena has 1024 bytes, this step held up to 512 at once; it ran"),
            std::string::npos)
      << smaller[0];
}

TEST(StepArena, AStepCutShortByAnExceptionIsLeftAndLaterOnesPlanAgain) {
  Runtime runtime;
  run_toy_steps(runtime, 3, 1000);
  struct Step {
    Allocator& allocator;
    explicit Step(Allocator& a) : allocator(a) { allocator.begin_step("train"); }
    ~Step() { allocator.end_step(); }
  };
  Tensor kept;
  try {
    Step step(runtime.allocator());
    const Tensor a = empty({1000}, DType::f32, runtime.device());
    kept = empty({2000}, DType::f32, runtime.device());
    throw std::runtime_error("a bad batch");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(runtime.allocator().report().diverged_steps, 1);
  EXPECT_GT(runtime.allocator().report().arena, 0) << "one block of it is still in use";
  kept = Tensor();
  run_toy_steps(runtime, 3, 1000);
  EXPECT_EQ(runtime.allocator().report().diverged_steps, 1);
  EXPECT_EQ(runtime.allocator().report().replayed_steps, 2);
}

TEST(StepArena, ADeviceThatFailsAtTheEndOfAStepDoesNotThrowThere) {
  Toy toy;
  toy.step("train", {4096});
  toy.allocator.begin_step("train");
  toy.allocator.release(toy.get(4096));
  toy.heap.broken = true;
  EXPECT_NO_THROW(toy.allocator.end_step());
  EXPECT_EQ(toy.allocator.last_divergence(),
            "step 'train' stays with the cache: the device failed (device lost) to give its arena "
            "of 4096 bytes");
  EXPECT_THROW(toy.get(4096), std::runtime_error) << "the next call says what is wrong";
}

TEST(StepArena, ABlockOfOneStepMayBeReleasedInTheNextWithoutLeavingThePlan) {
  Toy toy;
  Block kept{};
  for (int i = 0; i < 5; ++i) {
    toy.allocator.begin_step("train");
    const Block previous = kept;
    const Block a = toy.get(4096);
    kept = toy.get(512);
    if (i > 0) toy.allocator.release(previous);
    EXPECT_EQ(toy.in_arena(a), i >= 2);
    EXPECT_FALSE(toy.in_arena(kept));
    toy.allocator.release(a);
    toy.allocator.end_step();
  }
  toy.allocator.release(kept);
  EXPECT_EQ(toy.allocator.report().replayed_steps, 3);
  EXPECT_EQ(of(toy.allocator.report().live, Purpose::activations), 0);
}

TEST(StepArena, EmptyTensorsTakeAGranuleOfTheirOwn) {
  Toy toy;
  for (int i = 0; i < 4; ++i) {
    toy.allocator.begin_step("train");
    const Block a = toy.get(0), b = toy.get(0);
    EXPECT_NE(a.data, b.data);
    EXPECT_EQ(a.bytes, Allocator::kGranule);
    toy.allocator.release(a);
    toy.allocator.release(b);
    toy.allocator.end_step();
  }
  EXPECT_EQ(toy.allocator.report().arena, 2 * Allocator::kGranule);
  EXPECT_EQ(toy.allocator.report().replayed_steps, 2);
}

TEST(StepArena, AStepWithoutAllocationsHasNoArena) {
  Toy toy;
  toy.steps(3, "train", {});
  EXPECT_EQ(toy.allocator.report().arena, 0);
  EXPECT_EQ(toy.allocator.report().diverged_steps, 0);
}

TEST(StepArena, AFailedAllocationInAReplayEndsThePlanButNotTheRun) {
  Toy toy;
  toy.steps(2, "train", {4096, 512});
  toy.allocator.begin_step("train");
  const Block a = toy.get(4096);
  toy.heap.room = toy.heap.used;
  EXPECT_THROW(toy.get(int64_t{1} << 30), Error);
  toy.heap.room = 1 << 20;
  toy.allocator.release(a);
  toy.allocator.end_step();
  EXPECT_EQ(toy.allocator.report().diverged_steps, 1);
  toy.steps(3, "train", {4096, 512});
  EXPECT_EQ(toy.allocator.report().replayed_steps, 1);
}

}  // namespace
}  // namespace phx
