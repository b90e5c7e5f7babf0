#include "phalanx/core/op_trace.h"

#include <gtest/gtest.h>

#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/matmul.h"

namespace phx {
namespace {

TEST(OpTrace, RecordsEveryKernelWithItsCostAndTimesInOrder) {
  Runtime runtime;
  const Tensor a = zeros({3, 4}, DType::f32, runtime.device());
  const Tensor b = zeros({4, 5}, DType::f32, runtime.device());
  Tensor c = zeros({3, 5}, DType::f32, runtime.device()), d = empty_like(c);
  OpTrace trace(runtime);
  kernels::matmul(a, b, {}, {c});
  kernels::add(c, c, d);
  const std::vector<OpRecord> ops = trace.collect();
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops[0].name, "matmul");
  EXPECT_EQ(ops[0].cost.flops, 2 * 3 * 4 * 5);
  EXPECT_EQ(ops[0].cost.bytes, 4 * (3 * 4 + 4 * 5 + 3 * 5));
  EXPECT_EQ(ops[1].name, "add");
  EXPECT_LE(0, ops[0].begin_ms);
  EXPECT_LE(ops[0].begin_ms, ops[0].end_ms);
  EXPECT_LE(ops[0].end_ms, ops[1].begin_ms);
  EXPECT_TRUE(trace.collect().empty());
}

TEST(OpTrace, NobodyCountsWhenNobodyLooks) {
  Runtime runtime;
  Tensor c = zeros({3, 5}, DType::f32, runtime.device());
  { OpTrace trace(runtime); }
  kernels::fill(c, 1);
  EXPECT_EQ(runtime.cost().bytes, 0);
}

TEST(OpTrace, KernelsOfOneNameAndCostAreOneLine) {
  const std::vector<OpTotal> totals = totals_of(
      {{"a", {1, 2}, 0, 1}, {"b", {5, 5}, 1, 5}, {"a", {1, 2}, 5, 7}, {"a", {9, 2}, 7, 8}});
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0].name, "b");
  EXPECT_EQ(totals[1].count, 2);
  EXPECT_EQ(totals[1].ms, 3);
}

}  // namespace
}  // namespace phx
