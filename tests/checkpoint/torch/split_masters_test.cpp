#include "phalanx/checkpoint/torch/split_masters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "checkpoint/memory_source.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/kernels/master_split.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Numbers with all 24 bits in use, beside weights of every type. `scale`: of the weights, whose
// masters stay.
class Masters : public TensorSource {
 public:
  explicit Masters(float scale = 1) : scale_(scale) {}
  static float value(int64_t i) { return 1.0f + float(i) * 0x1p-23f * 777.0f; }
  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
    const DType dtype = infos_.at(name).dtype;
    const float scale = name.starts_with("optimizer.") ? 1 : scale_;
    for_float_dtype(dtype, [&]<class T>() {
      for (int64_t i = 0; i < box.size[0] * box.size[1]; ++i) {
        const T number(
            scale * value((box.begin[0] + i / box.size[1]) * 100 + box.begin[1] + i % box.size[1]));
        std::memcpy(out.data() + i * int64_t(sizeof(T)), &number, sizeof(T));
      }
    });
  }
  std::string description() const override { return "masters"; }

 private:
  float scale_;
  std::map<std::string, TensorInfo> infos_ = {{"a", {DType::bf16, {50, 100}}},
                                              {"optimizer.master.a", {DType::f32, {50, 100}}},
                                              {"optimizer.exp_avg.a", {DType::f32, {50, 100}}},
                                              {"b", {DType::f32, {4, 4}}},
                                              {"optimizer.master.b", {DType::f32, {4, 4}}},
                                              {"c", {DType::f16, {4, 4}}},
                                              {"optimizer.master.c", {DType::f32, {4, 4}}}};
};

TEST(SplitMasters, WeightsAndRemaindersGiveTheMastersBack) {
  const SplitMasters split(std::make_shared<Masters>());
  std::vector<std::string> names;
  for (const auto& [name, info] : split.tensors()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "optimizer.exp_avg.a", "optimizer.master.c",
                                 "optimizer.master_remainder.a"));
  const Box box{{7, 3}, {40, 90}};
  std::vector<uint16_t> weight(3600), remainder(3600);
  split.read("a", box, std::as_writable_bytes(std::span(weight)));
  split.read("optimizer.master_remainder.a", box, std::as_writable_bytes(std::span(remainder)));
  for (int64_t i = 0; i < 3600; ++i) {
    const float master = Masters::value((7 + i / 90) * 100 + 3 + i % 90);
    uint32_t bits;
    std::memcpy(&bits, &master, 4);
    EXPECT_EQ(kernels::join_master_bits(weight[size_t(i)], remainder[size_t(i)]), bits) << i;
  }
}

TEST(SplitMasters, WeightsThatWereChangedAreRefusedByName) {
  const auto read = [](float scale, const std::string& name) {
    const SplitMasters split(std::make_shared<Masters>(scale));
    return read_numbers(split, name, {{0, 0}, {4, 4}});
  };
  const auto error = [&](float scale, const std::string& name) {
    return error_of([&] { read(scale, name); });
  };
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_NO_THROW(read(1, name));
    EXPECT_THAT(error(2, name), HasSubstr(str_cat("the weight ", name, " has 2")));
    EXPECT_THAT(error(2, name), HasSubstr("--no-load-optim"));
  }
  EXPECT_NE(error(1 + 0x1p-22f, "b"), "");  // fp32 weights are their masters
  EXPECT_NO_THROW(read(2, "optimizer.exp_avg.a"));
}

TEST(SplitMasters, AMasterOfAnotherShapeIsRefused) {
  auto source = std::make_shared<TensorsInMemory>();
  source->set("a", {DType::bf16, {2, 3}}, std::vector<std::byte>(12));
  source->set("optimizer.master.a", {DType::f32, {3, 2}}, std::vector<std::byte>(24));
  EXPECT_EQ(error_of([&] { SplitMasters split(source); }),
            "memory: optimizer.master.a is [3, 2], but its weight is [2, 3]");
}

TEST(SplitMasters, AMasterWithoutAWeightStaysAsItIs) {
  auto source = std::make_shared<TensorsInMemory>();
  source->set("optimizer.master.a", {DType::f32, {1}}, std::vector<std::byte>(4));
  const SplitMasters split(source);
  EXPECT_EQ(split.tensors().at("optimizer.master.a").dtype, DType::f32);
  EXPECT_EQ(split.tensors().size(), 1u);
}

}  // namespace
}  // namespace phx
