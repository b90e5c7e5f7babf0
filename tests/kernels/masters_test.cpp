#include "phalanx/kernels/masters.h"

#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx::kernels {
namespace {

using namespace phx::testing;

Tensor values(const std::vector<double>& numbers, DType dtype) {
  return from_values(numbers, {int64_t(numbers.size())}, dtype, test_device());
}

constexpr const char* kRule =
    "; it is f32 or f64 with none, bf16 or f16 with f32, or bf16 with u16";

TEST(Masters, FourPairsOfTypesAreTaken) {
  const Tensor none;
  EXPECT_NO_THROW(check_master("x", values({1}, DType::f32), none));
  EXPECT_NO_THROW(check_master("x", values({1}, DType::f64), none));
  EXPECT_NO_THROW(check_master("x", values({1}, DType::f16), values({1}, DType::f32)));
  EXPECT_NO_THROW(
      check_master("x", values({1}, DType::bf16), zeros({1}, DType::u16, test_device())));
  EXPECT_EQ(error_of([&] { check_master("x", values({1}, DType::bf16), none); }),
            std::string("x: a weight of bf16 with no master") + kRule);
  EXPECT_EQ(error_of([&] {
              check_master("x", values({1}, DType::f16), zeros({1}, DType::u16, test_device()));
            }),
            std::string("x: a weight of f16 with a master of u16") + kRule);
  EXPECT_EQ(error_of([&] { check_master("x", values({1}, DType::f32), values({1}, DType::f32)); }),
            std::string("x: a weight of f32 with a master of f32") + kRule);
  EXPECT_EQ(error_of([&] {
              check_master("x", values({1, 2}, DType::f16), values({1}, DType::f32));
            }),
            "x: the weight has 2 elements, the master 1");
}

// Every policy gives back the number that was put, and leaves the weight nearest to it.
TEST(Masters, WhatIsPutComesBackAndTheWeightIsItRounded) {
  const float number = 1.0f + 0x1p-9f;  // bf16 and f16 are coarser, f32 is not
  const auto put = [&](DType dtype, const Tensor& master) {
    const Tensor weight = values({0, 0}, dtype);
    check_master("x", weight, master);
    with_master(weight, master, [&](const auto& policy) {
      policy.put(1, number);
      EXPECT_EQ(float(policy.get(1)), number);
      EXPECT_EQ(float(policy.get(0)), 0.0f);
    });
    return to_values(weight)[1];
  };
  EXPECT_EQ(put(DType::f64, {}), double(number));
  EXPECT_EQ(put(DType::f32, {}), double(number));
  EXPECT_EQ(put(DType::bf16, values({0, 0}, DType::f32)), 1.0);
  EXPECT_EQ(put(DType::bf16, zeros({2}, DType::u16, test_device())), 1.0);
  EXPECT_EQ(put(DType::f16, values({0, 0}, DType::f32)), double(number));
}

TEST(Masters, AStepsScalarsAreOneVectorOfDoubles) {
  EXPECT_NO_THROW(check_step_scalars("x", zeros({kNumSlots}, DType::f64, test_device())));
  EXPECT_EQ(
      error_of([] { check_step_scalars("x", zeros({3}, DType::f64, test_device())); }),
      str_cat("x: the step's scalars should be [", kNumSlots, "] of f64, but they are [3] of f64"));
  EXPECT_THROW(check_step_scalars("x", zeros({kNumSlots}, DType::f32, test_device())), Error);
}

}  // namespace
}  // namespace phx::kernels
