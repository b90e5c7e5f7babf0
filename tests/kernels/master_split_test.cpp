#include "phalanx/kernels/master_split.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using kernels::join_master_bits;
using kernels::split_master_bits;

// All 65536 upper halves with the lower halves where rounding turns.
template <class F>
void for_interesting_bits(F&& f) {
  for (uint32_t high = 0; high < 0x10000; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x1234u, 0x7ffeu, 0x7fffu, 0x8000u, 0x8001u, 0x8002u,
                         0xabcdu, 0xfffeu, 0xffffu})
      f((high << 16) | low);
}

bool is_nan(uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }

TEST(MasterSplit, EveryBitComesBack) {
  for_interesting_bits([](uint32_t master) {
    const auto [weight, remainder] = split_master_bits(master);
    const uint32_t back = join_master_bits(weight, remainder);
    if (is_nan(master))
      ASSERT_TRUE(is_nan(back)) << std::hex << master;
    else
      ASSERT_EQ(back, master) << std::hex << master;
  });
}

TEST(MasterSplit, EveryLowerHalfComesBack) {
  for (uint32_t high : {0x0000u, 0x0001u, 0x3f80u, 0x3f81u, 0x7f7fu, 0x8000u, 0xbf80u, 0xff7fu})
    for (uint32_t low = 0; low < 0x10000; ++low) {
      const uint32_t master = (high << 16) | low;
      const auto [weight, remainder] = split_master_bits(master);
      ASSERT_EQ(join_master_bits(weight, remainder), master) << std::hex << master;
    }
}

TEST(MasterSplit, TheWeightIsTheNearestWithTiesAwayFromZero) {
  for_interesting_bits([](uint32_t master) {
    const uint16_t weight = split_master_bits(master).weight;
    const uint16_t even = bf16(std::bit_cast<float>(master)).bits;  // ties to even
    const bool tie = (master & 0xffffu) == 0x8000u && !is_nan(master);
    const bool tie_to_even_goes_down = tie && (master >> 16) % 2 == 0;
    ASSERT_EQ(weight, tie_to_even_goes_down ? even + 1 : even) << std::hex << master;
  });
}

TEST(MasterSplit, KernelsSplitAndJoinTensors) {
  const Tensor master = randn({70001}, Seed{1}, DType::f32);
  Tensor weight = empty({70001}, DType::bf16, test_device());
  Tensor remainder = empty({70001}, DType::u16, test_device());
  Tensor back = empty({70001}, DType::f32, test_device());
  kernels::split_master(master, weight, remainder);
  kernels::join_master(weight, remainder, back);
  EXPECT_EQ(to_values(back), to_values(master));
  expect_close(weight, master, 0x1p-8);  // half a unit in the last of 8 bits
}

TEST(MasterSplit, RefusesOtherTypes) {
  const std::string message = error_of([] {
    Tensor weight = empty({4}, DType::f16, test_device());
    Tensor remainder = empty({4}, DType::u16, test_device());
    kernels::split_master(randn({4}, Seed{1}, DType::f32), weight, remainder);
  });
  EXPECT_EQ(message,
            "a split master is f32 = bf16 + u16 of one size, not [4] f32 = [4] f16 + [4] u16");
}

PHX_CUDA_TEST(MasterSplit, CudaSplitsLikeCpu) {
  const Device device = cuda_test_runtime().device();
  std::vector<float> all;
  for_interesting_bits([&](uint32_t bits) {
    if (!is_nan(bits)) all.push_back(std::bit_cast<float>(bits));
  });
  const auto n = int64_t(all.size());
  Tensor master = empty({n}, DType::f32, device), back = empty({n}, DType::f32, device);
  copy_from_host(master, all.data());
  Tensor weight = empty({n}, DType::bf16, device), remainder = empty({n}, DType::u16, device);
  kernels::split_master(master, weight, remainder);
  kernels::join_master(weight, remainder, back);
  std::vector<float> result(all.size());
  copy_to_host(back, result.data());
  for (size_t i = 0; i < all.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(result[i]), std::bit_cast<uint32_t>(all[i]));
}

}  // namespace
}  // namespace phx
