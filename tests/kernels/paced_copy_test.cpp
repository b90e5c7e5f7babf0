// A copy that fills its target and takes its time.
#include "phalanx/kernels/paced_copy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;

void expect_filled(Device device) {
  const Stream stream = device.runtime().stream(StreamName::dp);
  const Tensor from = from_values(std::vector<double>{1, 2}, {2}, DType::f32, device);
  const Tensor to = zeros({5}, DType::f32, device);
  device.runtime().synchronize();
  paced_copy(from, to, 0, stream);
  paced_copy(to.rows(3, 1), to.rows(3, 2), 0, stream);  // a part of itself
  stream.synchronize();
  EXPECT_THAT(to_values(to), ElementsAre(1, 2, 1, 2, 2));
}

void expect_paced(Device device) {
  const Stream stream = device.runtime().stream(StreamName::dp);
  const Tensor x = zeros({1 << 20}, DType::f32, device);
  paced_copy(x, x, 0, stream);
  device.runtime().synchronize();
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) paced_copy(x, x, 0.02, stream);
  stream.synchronize();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 0.08);
  EXPECT_LE(took.count(), 1) << "4 MiB take far less than the time they are given";
}

TEST(PacedCopy, FillsItsTargetAgainAndAgain) { expect_filled(test_device()); }
TEST(PacedCopy, TakesTheTimeItIsGiven) { expect_paced(test_device()); }
PHX_CUDA_TEST(PacedCopy, CudaFillsItsTargetAgainAndAgain) {
  expect_filled(cuda_test_runtime().device());
}
PHX_CUDA_TEST(PacedCopy, CudaTakesTheTimeItIsGiven) { expect_paced(cuda_test_runtime().device()); }

TEST(PacedCopy, NothingCannotFillSomething) {
  const Tensor nothing = empty({0}, DType::f32, test_device());
  const Tensor x = zeros({3}, DType::f32, test_device());
  EXPECT_THAT(error_of([&] { paced_copy(nothing, x, 0, x.runtime().stream(StreamName::dp)); }),
              ::testing::HasSubstr("nothing is there to fill 12 bytes with"));
}

}  // namespace
}  // namespace phx::kernels
