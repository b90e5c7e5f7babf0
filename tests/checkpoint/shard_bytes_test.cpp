#include "phalanx/checkpoint/shard_bytes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/gradients.h"

namespace phx {
namespace {

using phx::testing::test_device;

// 0, 1, 2, .. as bytes.
Tensor counted(int64_t count) {
  std::vector<int64_t> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return from_ints(values, {count}, DType::u8, test_device());
}

// Rows of 3 out of a matrix of 5 columns, nothing, and four elements in one piece.
std::vector<LocalBox> three_boxes(const Tensor& flat) {
  const TensorInfo info = {DType::u8, {4, 5}};
  return {{.name = "a", .info = info, .flat = flat, .offset = 6, .pitch = 5, .rows = 2, .cols = 3},
          {.name = "b", .info = info, .flat = flat, .offset = 0, .pitch = 5, .rows = 0, .cols = 5},
          {.name = "c", .info = info, .flat = flat, .offset = 1, .pitch = 2, .rows = 2, .cols = 2}};
}

TEST(ShardBytes, AnyRangeIsThatPartOfHeaderAndRows) {
  const Tensor flat = counted(20);
  const std::vector<LocalBox> boxes = three_boxes(flat);
  const ShardBytes shard("HDR", boxes);
  const std::vector<int> expected = {'H', 'D', 'R', 6, 7, 8, 11, 12, 13, 1, 2, 3, 4};
  ASSERT_EQ(shard.size(), int64_t(expected.size()));
  for (const ReadNext next : {ReadNext::soon, ReadNext::later}) {
    for (int64_t begin = 0; begin <= shard.size(); ++begin) {
      for (int64_t end = begin; end <= shard.size(); ++end) {
        std::vector<std::byte> out(size_t(end - begin));
        shard.copy(begin, out, next);
        for (size_t i = 0; i < out.size(); ++i)
          ASSERT_EQ(int(out[i]), expected[size_t(begin) + i]) << begin << " to " << end;
      }
    }
  }
}

TEST(ShardBytes, ElementsOfSeveralBytesAreWhole) {
  const Tensor flat =
      from_values(std::vector<double>{1, 2, 3, 4, 5, 6}, {6}, DType::f32, test_device());
  const std::vector<LocalBox> boxes = {{.name = "a",
                                        .info = {DType::f32, {2, 3}},
                                        .flat = flat,
                                        .offset = 1,
                                        .pitch = 3,
                                        .rows = 2,
                                        .cols = 2}};
  const ShardBytes shard("", boxes);
  std::vector<float> out(4);
  shard.copy(0, std::as_writable_bytes(std::span(out)), ReadNext::soon);
  EXPECT_EQ(out, (std::vector<float>{2, 3, 5, 6}));
}

TEST(ShardBytes, BytesBeyondTheEndAreABug) {
  const Tensor flat = counted(20);
  const std::vector<LocalBox> boxes = three_boxes(flat);
  const ShardBytes shard("HDR", boxes);
  std::vector<std::byte> out(2);
  EXPECT_NE(phx::testing::error_of([&] {
              shard.copy(12, out, ReadNext::soon);
            }).find("bytes 12 + 2 of 13"),
            std::string::npos);
  EXPECT_THROW(shard.copy(-1, out, ReadNext::soon), Error);
}

}  // namespace
}  // namespace phx
