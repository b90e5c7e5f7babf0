#include "phalanx/convert/widened_source.h"

#include <gtest/gtest.h>

#include "checkpoint/memory_source.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(WidenedSource, FloatsAreWidenedAndIntegersStay) {
  auto narrow = std::make_shared<TensorsInMemory>();
  const bf16 numbers[] = {bf16(1.5f), bf16(-3.0f)};
  const auto bytes = std::as_bytes(std::span(numbers));
  narrow->set("x", {DType::bf16, {2}}, {bytes.begin(), bytes.end()});
  narrow->set("ids", {DType::u8, {2}}, {std::byte{7}, std::byte{8}});
  const WidenedSource source(narrow, DType::f32);
  EXPECT_EQ(source.tensors().at("x").dtype, DType::f32);
  EXPECT_EQ(source.tensors().at("ids").dtype, DType::u8);
  float out[2];
  source.read("x", {{0}, {2}}, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out[0], 1.5f);
  EXPECT_EQ(out[1], -3.0f);
  source.read("x", {{1}, {1}}, std::as_writable_bytes(std::span(out, 1)));
  EXPECT_EQ(out[0], -3.0f);
  std::vector<std::byte> id(1);
  source.read("ids", {{1}, {1}}, id);
  EXPECT_EQ(id[0], std::byte{8});
  EXPECT_EQ(error_of([&] { source.read("y", {{0}, {1}}, id); }), "memory has no tensor y");
}

}  // namespace
}  // namespace phx
