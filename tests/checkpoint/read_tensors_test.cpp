#include "phalanx/checkpoint/read_tensors.h"

#include <gtest/gtest.h>

#include "checkpoint/memory_source.h"
#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST(ReadTensors, ValuesAreThoseOfTheTensorOrOfABoxOfIt) {
  TensorsInMemory source;
  source.set("w", {DType::f32, {2, 3}}, bytes_of<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read_values(source, "w"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read_values(source, "w", {.begin = {1, 1}, .size = {1, 2}}),
            (std::vector<double>{5, 6}));
  EXPECT_THROW(read_values(source, "v"), Error);
}

TEST(ReadTensors, ValuesOf16BitsAreWidened) {
  EXPECT_EQ(values_of(DType::bf16, bytes_of<uint16_t>({0x3f80, 0xc000})),
            (std::vector<double>{1, -2}));
}

TEST(ReadTensors, AFolderWithoutACheckpointIsNamed) {
  const TempFolder folder;
  try {
    open_checkpoint(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(folder.path().string() + " holds no checkpoint"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace phx
