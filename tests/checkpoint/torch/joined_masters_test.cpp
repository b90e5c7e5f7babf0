#include "phalanx/checkpoint/torch/joined_masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/memory_source.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/split_masters.h"
#include "phalanx/core/small_float.h"

namespace phx {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
void add(TensorsInMemory& source, const std::string& name, DType dtype,
         const std::vector<T>& values) {
  source.set(name, {dtype, {2, int64_t(values.size()) / 2}}, bytes_of(values));
}

// Numbers that bf16 cannot hold.
const std::vector<float> kMasters = {1.0000123f, -3.14159265f, 1e-20f, 7.7777777e8f};

std::vector<bf16> rounded(const std::vector<float>& masters) {
  std::vector<bf16> weights;
  for (const float master : masters) weights.emplace_back(master);
  return weights;
}

TEST(JoinedMasters, AreWhatWasSplit) {
  auto whole = std::make_shared<TensorsInMemory>();
  add(*whole, "w", DType::bf16, rounded(kMasters));
  add(*whole, "optimizer.master.w", DType::f32, kMasters);
  const JoinedMasters joined(std::make_shared<SplitMasters>(whole));
  EXPECT_EQ(joined.tensors().at("w").dtype, DType::bf16);
  EXPECT_EQ(joined.tensors().at("optimizer.master.w").dtype, DType::f32);
  EXPECT_FALSE(joined.tensors().contains("optimizer.master_remainder.w"));
  EXPECT_EQ(read_numbers(joined, "optimizer.master.w"),
            std::vector<double>(kMasters.begin(), kMasters.end()));
  EXPECT_EQ(read_numbers(joined, "optimizer.master.w", {{1, 0}, {1, 2}}),
            std::vector<double>(kMasters.begin() + 2, kMasters.end()));
}

// 1 + 2^-8 lies in the middle of two bf16; PyTorch takes the even one, our runs the other.
TEST(JoinedMasters, WeightsAreRoundedAsPyTorchDoes) {
  auto whole = std::make_shared<TensorsInMemory>();
  const std::vector<float> masters = {1.00390625f, 1.f, 3.f, 1e-3f};
  add(*whole, "w", DType::bf16, rounded(masters));
  add(*whole, "optimizer.master.w", DType::f32, masters);
  const auto split = std::make_shared<SplitMasters>(whole);
  EXPECT_EQ(read_numbers(*split, "w")[0], 1.0078125);
  const JoinedMasters joined(split);
  EXPECT_EQ(read_numbers(joined, "w")[0], 1);
  EXPECT_EQ(read_numbers(joined, "w")[3], double(float(bf16(1e-3f))));
}

TEST(JoinedMasters, WeightsInFp32AreTheirOwnMasters) {
  auto source = std::make_shared<TensorsInMemory>();
  add(*source, "w", DType::f32, kMasters);
  const JoinedMasters joined(source);
  EXPECT_EQ(read_numbers(joined, "optimizer.master.w"), read_numbers(joined, "w"));
}

TEST(JoinedMasters, MomentsOf16BitsBecomeFp32) {
  auto source = std::make_shared<TensorsInMemory>();
  add(*source, "w", DType::f16, std::vector<f16>{f16(1.f), f16(2.f), f16(3.f), f16(4.f)});
  add(*source, "optimizer.master.w", DType::f32, kMasters);
  add(*source, "optimizer.exp_avg.w", DType::bf16,
      std::vector<bf16>{bf16(0.5f), bf16(-2.f), bf16(0.f), bf16(96.f)});
  const JoinedMasters joined(source);
  EXPECT_EQ(joined.tensors().at("w").dtype, DType::f16);
  EXPECT_EQ(joined.tensors().at("optimizer.exp_avg.w").dtype, DType::f32);
  EXPECT_EQ(read_numbers(joined, "optimizer.exp_avg.w"), (std::vector<double>{0.5, -2, 0, 96}));
  EXPECT_EQ(read_numbers(joined, "optimizer.master.w")[1], double(kMasters[1]));
}

}  // namespace
}  // namespace phx
