// The small ops add, scale, cast and transpose together, on meta and on cuda.
#include <gtest/gtest.h>

#include "phalanx/ops/add.h"
#include "phalanx/ops/cast.h"
#include "phalanx/ops/scale.h"
#include "phalanx/ops/transpose.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor residual(std::span<const Tensor> in) { return add(in[0], scale(in[1], 0.3)); }

TEST(SmallOps, MetaAllocatesLikeCpu) {
  expect_meta_allocates_like_cpu([](Device device) {
    const auto f = [](std::span<const Tensor> in) {
      return cast(transpose(residual(in)), DType::bf16);
    };
    gradients_of(f, std::vector<Tensor>{empty({33, 24}, DType::f32, device),
                                        empty({33, 24}, DType::f32, device)});
  });
}

PHX_CUDA_TEST(SmallOps, CudaMatchesCpuAtOddSizes) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const auto f = [](std::span<const Tensor> in) {
      return cast(transpose(residual(in)), DType::f32);
    };
    // A fused multiply-add, two roundings to `dtype`.
    const double tolerance = dtype == DType::f32 ? 1e-6 : dtype == DType::f16 ? 2e-3 : 1.6e-2;
    expect_cuda_matches_cpu(
        f, {randn({37, 3, 11}, Seed{1}, dtype), randn({37, 3, 11}, Seed{2}, dtype)}, tolerance);
  }
}

}  // namespace
}  // namespace phx
