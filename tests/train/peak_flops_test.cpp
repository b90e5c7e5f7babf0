#include <gtest/gtest.h>

#include "phalanx/train/trainer.h"
#include "support/gradients.h"

namespace phx {
namespace {

TEST(PeakFlops, OfACpuAreMeasuredAndLeaveNoTraceInTheMemorysPeak) {
  Runtime runtime({.threads = 1});
  const Tensor kept = zeros({1000}, DType::f32, runtime.device());
  const int64_t before = runtime.allocator().report().peak_total;
  const std::optional<double> peak = peak_flops(runtime.device(), DType::bf16);
  ASSERT_TRUE(peak);
  EXPECT_GT(*peak, 1e8);   // a core adds and multiplies more often than that
  EXPECT_LT(*peak, 1e14);  // and less often than that
  EXPECT_EQ(runtime.allocator().report().peak_total, before);
}

TEST(PeakFlops, OfADeviceThatComputesNothingAreUnknown) {
  Runtime meta({.kind = DeviceKind::meta, .target = DeviceKind::cuda});
  EXPECT_FALSE(peak_flops(meta.device(), DType::f32));
}

}  // namespace
}  // namespace phx
