#include "phalanx/kernels/gemm_problem.h"

#include <gtest/gtest.h>

#include "phalanx/core/tensor.h"
#include "support/gradients.h"

namespace phx::kernels {
namespace {

TEST(GemmProblem, AMetaDeviceKnowsTheProductsThatAGpuWouldCompute) {
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  const Device device = runtime.device();
  const Tensor x = empty({4, 2, 64}, DType::bf16, device);  // [s, b, h]
  const Tensor w = empty({48, 64}, DType::bf16, device);    // [out, in]
  const Tensor bias = empty({48}, DType::bf16, device);
  Tensor y = empty({4, 2, 48}, DType::bf16, device);
  for (int i = 0; i < 2; ++i)
    matmul(x, w, {.transpose_b = true, .bias = bias}, Sink{y, i == 0 ? 0.f : 1.f});
  const auto& seen = runtime.extension<GemmUse>().seen;
  ASSERT_EQ(seen.size(), 1u);  // twice the same product: whether it is added to c does not count
  const GemmProblem& product = *seen.begin();
  EXPECT_EQ(product.m, 8);
  EXPECT_EQ(product.n, 48);
  EXPECT_EQ(product.k, 64);
  EXPECT_TRUE(product.bias && product.transpose_b && !product.transpose_a);
  EXPECT_EQ(product.align_c, 256u);
}

TEST(GemmProblem, AMetaDeviceOfACpuKeepsNoProducts) {
  Runtime runtime({.kind = DeviceKind::meta, .target = DeviceKind::cpu});
  const Tensor x = empty({4, 8}, DType::f32, runtime.device());
  Tensor y = empty({4, 4}, DType::f32, runtime.device());
  matmul(x, x, {.transpose_b = true}, Sink{y, 0.f});
  EXPECT_TRUE(runtime.extension<GemmUse>().seen.empty());
}

TEST(GemmProblem, AddressesCountByTheBytesTheyAreMultiplesOf) {
  const Device device = phx::testing::test_device();
  const Tensor a = empty({8, 4}, DType::f32, device), b = empty({8, 4}, DType::f32, device);
  const Tensor c = empty({9, 8}, DType::f32, device);
  const MatmulProblem problem{.m = 8, .n = 8, .k = 4};
  const auto of = [&](const Tensor& x, const Tensor& y, const MatmulOptions& options) {
    return gemm_problem(x, b, options, problem, Sink{y, 0.f});
  };
  EXPECT_EQ(of(a, c, {}).align_a, 256u) << "an allocation, however large its alignment is";
  EXPECT_EQ(of(a.rows(1, 7), c, {}).align_a, 16u);
  EXPECT_EQ(of(a.rows(2, 6), c, {}).align_a, 32u);
  EXPECT_EQ(of(a, c.rows(1, 8), {}).align_c, 32u);
  // What is added is read like c: the smaller of the two counts.
  EXPECT_EQ(of(a, c.rows(0, 8), {.add = c.rows(1, 8)}).align_c, 32u);
}

TEST(GemmProblem, ProductsThatDifferInAnythingAreTwo) {
  const GemmProblem product{.m = 8, .n = 48, .k = 64};
  std::set<GemmProblem> seen = {product, product};
  EXPECT_EQ(seen.size(), 1u);
  GemmProblem other = product;
  other.align_b = 16;
  seen.insert(other);
  other = product;
  other.transpose_a = true;
  seen.insert(other);
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(product.flops(), 2.0 * 8 * 48 * 64);
}

}  // namespace
}  // namespace phx::kernels
