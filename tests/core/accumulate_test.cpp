#include "phalanx/core/accumulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor values(const std::vector<double>& numbers, DType dtype) {
  return from_values(numbers, {int64_t(numbers.size())}, dtype, test_device());
}

TEST(Accumulate, BetaZeroDoesNotReadWhatWasThere) {
  const Sink sink = {values({NAN, NAN}, DType::f32), 0.f};
  add_to_sink(values({1.5, -2}, DType::f32), sink);
  EXPECT_EQ(to_values(sink.tensor), (std::vector<double>{1.5, -2}));
  add_to_sink(values({1, 1}, DType::f32), {sink.tensor, 1.f});
  EXPECT_EQ(to_values(sink.tensor), (std::vector<double>{2.5, -1}));
}

TEST(Accumulate, AWiderSinkKeepsWhatTheNarrowTypeWouldLose) {
  // 256 + 1 has nine bits: bf16 rounds it to 256, an f32 sink holds it.
  const Tensor wide = values({256}, DType::f32), narrow = values({256}, DType::bf16);
  const Tensor x = values({1}, DType::bf16);
  add_to_sink(x, {wide, 1.f});
  add_to_sink(x, {narrow, 1.f});
  EXPECT_EQ(to_values(wide)[0], 257.0);
  EXPECT_EQ(to_values(narrow)[0], 256.0);
}

TEST(Accumulate, EveryElementOfALargeTensorIsAddedOnce) {
  const int64_t n = (1 << 15) + 3;  // several pieces of work, the last one short
  const Tensor x = randn({n}, Seed{1}), before = randn({n}, Seed{2});
  Tensor sink = empty_like(x);
  copy(before, sink);
  add_to_sink(x, {sink, 1.f});
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(sink.data<double>()[i], before.data<double>()[i] + x.data<double>()[i]) << i;
}

TEST(Accumulate, MetaCountsTheAdditionsAndTheBytes) {
  Runtime meta({.kind = DeviceKind::meta});
  const Tensor x = empty({10}, DType::bf16, meta.device());
  add_to_sink(x, {empty({10}, DType::f32, meta.device()), 1.f});
  EXPECT_EQ(meta.cost().flops, 10);
  EXPECT_EQ(meta.cost().bytes, 10 * 2 + 2 * 10 * 4);  // x read, the sink read and written
}

TEST(Accumulate, RefusesASinkOfAnotherSize) {
  EXPECT_NE(error_of([] {
              add_to_sink(values({1, 2}, DType::f32), {values({1}, DType::f32), 0.f});
            }).find("adding [2] to [1]"),
            std::string::npos);
}

TEST(Accumulate, OnlyASharedGradientIsCopied) {
  Tensor mine = values({1, 2}, DType::f64);
  const void* data = mine.raw();
  make_sole_owner(mine);
  EXPECT_EQ(mine.raw(), data);

  const Tensor other = mine;
  make_sole_owner(mine);
  EXPECT_NE(mine.raw(), other.raw());
  EXPECT_EQ(to_values(mine), to_values(other));
  EXPECT_TRUE(mine.sole_owner());
}

}  // namespace
}  // namespace phx
