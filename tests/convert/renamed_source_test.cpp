#include "phalanx/convert/renamed_source.h"

#include <gtest/gtest.h>

#include "checkpoint/memory_source.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

std::shared_ptr<TensorsInMemory> two_tensors() {
  auto source = std::make_shared<TensorsInMemory>();
  source->set("a", {DType::u8, {2}}, {std::byte{1}, std::byte{2}});
  source->set("optimizer.a", {DType::u8, {2}}, {std::byte{3}, std::byte{4}});
  return source;
}

TEST(RenamedSource, TensorsHaveTheirNewNamesAndOldNumbers) {
  const RenamedSource source(two_tensors(), [](const std::string& name) {
    return name == "a" ? std::optional<std::string>("b") : std::nullopt;
  });
  EXPECT_EQ(source.tensors(), (TensorInfos{{"b", {DType::u8, {2}}}}));
  std::vector<std::byte> out(1);
  source.read("b", {{1}, {1}}, out);
  EXPECT_EQ(out[0], std::byte{2});
  EXPECT_EQ(source.description(), "memory");
  for (const char* old : {"a", "optimizer.a"})
    EXPECT_EQ(error_of([&] {
                source.read(old, {{0}, {1}}, out);
              }),
              std::string("memory has no tensor ") + old);
}

TEST(RenamedSource, TwoTensorsCannotHaveOneName) {
  EXPECT_EQ(error_of([] {
              RenamedSource source(two_tensors(), [](const std::string&) {
                return std::optional<std::string>("same");
              });
            }),
            "memory: two tensors would be called same");
}

}  // namespace
}  // namespace phx
