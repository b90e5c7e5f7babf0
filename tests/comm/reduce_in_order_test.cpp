#include "phalanx/comm/reduce_in_order.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using testing::test_device;
using testing::test_runtime;

using Values = std::vector<double>;

// The reduction of one tensor for each rank.
Values reduced(const std::vector<Values>& ranks, DType dtype, ReduceOp op) {
  std::vector<Tensor> parts;  // [n] each
  std::vector<const void*> in;
  for (const Values& values : ranks) {
    parts.push_back(from_values(values, {int64_t(values.size())}, dtype, test_device()));
    in.push_back(parts.back().raw());
  }
  const Tensor out = empty_like(parts[0]);  // [n]
  reduce_in_order(in, out.raw(), out.numel(), dtype, op, test_runtime().threads());
  return to_values(out);
}

TEST(ReduceInOrder, AddsInTheOrderOfTheRanks) {
  // In f32 1e8 + 1 is 1e8: what comes first decides.
  EXPECT_EQ(reduced({{1e8}, {-1e8}, {1}}, DType::f32, ReduceOp::sum), Values{1});
  EXPECT_EQ(reduced({{1e8}, {1}, {-1e8}}, DType::f32, ReduceOp::sum), Values{0});
}

TEST(ReduceInOrder, NarrowTypesAreRoundedOnce) {
  EXPECT_EQ(reduced({{256}, {1}, {1}}, DType::bf16, ReduceOp::sum), Values{258});
  EXPECT_EQ(reduced({{2048}, {1}, {1}}, DType::f16, ReduceOp::sum), Values{2050});
}

TEST(ReduceInOrder, TheLargestStaysAndANanAsWell) {
  EXPECT_EQ(reduced({{-3, 1}, {-2, 5}, {-7, 2}}, DType::f32, ReduceOp::max), (Values{-2, 5}));
  for (const int with : {0, 1, 2}) {
    std::vector<Values> ranks = {{1}, {2}, {3}};
    ranks[size_t(with)][0] = NAN;
    EXPECT_TRUE(std::isnan(reduced(ranks, DType::f32, ReduceOp::max)[0])) << with;
  }
}

TEST(ReduceInOrder, WholeNumbersAreAddedAsWholeNumbers) {
  const int64_t large = (int64_t{1} << 53) + 1;  // no double holds it
  const int64_t a[] = {large}, b[] = {2};
  int64_t out[] = {0};
  const void* in[] = {a, b};
  reduce_in_order(in, out, 1, DType::i64, ReduceOp::sum, test_runtime().threads());
  EXPECT_EQ(out[0], large + 2);
}

TEST(ReduceInOrder, ManyElementsMatchAPlainLoopAndOutMayBeOneOfIn) {
  for (const int64_t n : {1, 2047, 2048, 2049, 8192, 20001}) {  // a tile is 2048, a share 8192
    std::vector<float> a(static_cast<size_t>(n)), b(a.size()), expected(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = float(i % 97) - 40;
      b[i] = float(i % 89) * 3;
      expected[i] = a[i] + b[i];
    }
    const void* in[] = {a.data(), b.data()};
    reduce_in_order(in, b.data(), n, DType::f32, ReduceOp::sum, test_runtime().threads());
    EXPECT_EQ(b, expected) << n;
  }
}

}  // namespace
}  // namespace phx
