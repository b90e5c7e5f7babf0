#include "phalanx/core/runtime.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "phalanx/core/tensor.h"
#include "support/gradients.h"

namespace phx {
namespace {

using testing::error_of;

TEST(Runtime, AMetaDeviceImpersonatesAnotherAndTheOthersThemselves) {
  Runtime cpu({.kind = DeviceKind::cpu, .target = DeviceKind::cuda});
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  EXPECT_EQ(cpu.device().target(), DeviceKind::cpu);
  EXPECT_EQ(meta.device().kind(), DeviceKind::meta);
  EXPECT_EQ(meta.device().target(), DeviceKind::cuda);
  EXPECT_STREQ(name(meta.kind()), "meta");
  EXPECT_EQ(meta.description(), "meta");
}

TEST(Runtime, MetaAddressesAreAlignedDistinctAndEndWithTheBytesGiven) {
  Runtime meta({.kind = DeviceKind::meta, .meta_bytes = int64_t{10} << 20});
  const auto source = meta.backend().memory_source();
  const auto first = reinterpret_cast<uintptr_t>(source->allocate(int64_t{3} << 20));
  const auto second = reinterpret_cast<uintptr_t>(source->allocate(int64_t{4} << 20));
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first % Allocator::kGranule, 0u);
  EXPECT_GE(second, first + (3 << 20));
  EXPECT_EQ(source->available(), int64_t{3} << 20);
  EXPECT_EQ(source->allocate((int64_t{3} << 20) + 1), nullptr);
  source->free(reinterpret_cast<void*>(second), int64_t{4} << 20);
  EXPECT_EQ(source->available(), int64_t{7} << 20);
}

TEST(Runtime, AMetaDeviceHasNoEndOfMemoryUnlessItIsToldOne) {
  Runtime meta({.kind = DeviceKind::meta});
  const Tensor large = empty({int64_t{1} << 44}, DType::f32, meta.device());  // 64 TiB
  EXPECT_EQ(large.bytes(), int64_t{1} << 46);
  Runtime small({.kind = DeviceKind::meta, .meta_bytes = 1000});
  EXPECT_THROW(empty({int64_t{1} << 20}, DType::f32, small.device()), OutOfMemory);
}

TEST(Runtime, CountsHowOftenTheHostWaitsForTheDevice) {
  Runtime cpu;
  const Tensor x = zeros({2}, DType::f32, cpu.device());
  const int64_t before = cpu.host_waits();
  const Fence fence = cpu.stream(StreamName::compute).record();
  cpu.stream(StreamName::d2h).wait(fence);  // a stream waits, not the host
  EXPECT_EQ(cpu.host_waits(), before);
  float values[2];
  copy_to_host(x, values);
  EXPECT_EQ(cpu.host_waits(), before + 1);
  cpu.synchronize();
  cpu.stream(StreamName::d2h).synchronize();
  cpu.wait_on_host(fence);
  EXPECT_EQ(cpu.host_waits(), before + 4);
}

TEST(Runtime, AMetaDeviceGivesNoValues) {
  Runtime meta({.kind = DeviceKind::meta});
  char byte = 0;
  EXPECT_EQ(error_of([&] { meta.backend().copy_to_host(&byte, nullptr, 1, StreamName::compute); }),
            "a meta tensor has no values to read");
}

TEST(Runtime, RowsAreCopiedBetweenDifferentPitches) {
  Runtime cpu;
  const std::array<char, 9> from = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'};
  std::array<char, 8> to;
  to.fill('.');
  cpu.backend().copy_rows({.dst = to.data() + 1,
                           .dst_pitch = 4,
                           .src = from.data(),
                           .src_pitch = 3,
                           .row_bytes = 2,
                           .rows = 2},
                          StreamName::compute);
  EXPECT_EQ(std::string(to.data(), to.size()), ".ab..de.");
}

TEST(Runtime, CopiesWithinADeviceMayOverlap) {
  Runtime cpu;
  std::string text = "abcdef";
  cpu.backend().copy_within(text.data() + 1, text.data(), 5, StreamName::compute);
  EXPECT_EQ(text, "aabcde");
}

TEST(Runtime, AnExtensionIsMadeOnceAndBelongsToItsRuntime) {
  struct Handle {
    explicit Handle(Runtime& made_for) : runtime(&made_for) {}
    Runtime* runtime;
  };
  Runtime one, other;
  EXPECT_EQ(one.made_extension<Handle>(), nullptr);
  Handle& handle = one.extension<Handle>();
  EXPECT_EQ(handle.runtime, &one);
  EXPECT_EQ(&one.extension<Handle>(), &handle);
  EXPECT_EQ(one.made_extension<Handle>(), &handle);
  EXPECT_NE(&other.extension<Handle>(), &handle);
}

TEST(Runtime, ExtensionsGoBeforeTheMemoryTheyHold) {
  struct Holder {
    explicit Holder(Runtime& runtime) : held(empty({4}, DType::f32, runtime.device())) {}
    Tensor held;
  };
  Runtime runtime;
  runtime.extension<Holder>();  // the destructor releases a block of a living allocator
  EXPECT_EQ(runtime.allocator().report().live[size_t(Purpose::activations)], 256);
}

TEST(Runtime, ScopesPutBackWhatWasThere) {
  Runtime runtime;
  {
    GradMode off(runtime, false);
    GradMode on(runtime, true);
    PurposeScope weights(runtime, Purpose::weights);
    EXPECT_TRUE(runtime.grad_enabled());
    EXPECT_EQ(runtime.purpose(), Purpose::weights);
  }
  EXPECT_TRUE(runtime.grad_enabled());
  EXPECT_EQ(runtime.purpose(), Purpose::activations);
}

TEST(Runtime, HostTimeGoesForward) {
  Runtime cpu;
  const TimeMark from = cpu.backend().mark_time(StreamName::compute);
  const TimeMark to = cpu.backend().mark_time(StreamName::compute);
  EXPECT_GE(cpu.backend().milliseconds(from, to), 0.0);
  EXPECT_EQ(cpu.backend().milliseconds({{}, 3.0}, {{}, 5.5}), 2.5);
}

#ifndef PHX_HAVE_CUDA
TEST(Runtime, ABuildWithoutCudaSaysSoWithTheWayOut) {
  EXPECT_EQ(error_of([] { Runtime cuda({.kind = DeviceKind::cuda}); }),
            "this phalanx was built without CUDA; build the 'cuda' preset, or use --device cpu");
  std::string why;
  EXPECT_FALSE(cuda_available(&why));
  EXPECT_EQ(why, "built without CUDA");
}
#endif

}  // namespace
}  // namespace phx
