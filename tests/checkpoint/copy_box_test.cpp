#include "phalanx/checkpoint/copy_box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::vector<int> boxed(const std::vector<int64_t>& shape, const Box& box) {
  int64_t count = 1, asked = 1;
  for (const int64_t extent : shape) count *= extent;
  for (const int64_t extent : box.size) asked *= extent;
  std::vector<std::byte> whole, out(static_cast<size_t>(asked));
  for (int64_t i = 0; i < count; ++i) whole.push_back(std::byte(i));
  copy_box(whole, {DType::u8, shape}, box, out, "x");
  std::vector<int> values;
  for (const std::byte value : out) values.push_back(int(value));
  return values;
}

TEST(CopyBox, TakesTheElementsRowByRow) {
  EXPECT_EQ(boxed({3, 4}, {{1, 1}, {2, 2}}), (std::vector<int>{5, 6, 9, 10}));
  EXPECT_EQ(boxed({3, 4}, {{1, 0}, {2, 4}}), (std::vector<int>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(boxed({2, 2, 3}, {{0, 1, 1}, {2, 1, 2}}), (std::vector<int>{4, 5, 10, 11}));
  EXPECT_EQ(boxed({2, 3, 2}, {{0, 1, 0}, {2, 2, 2}}), (std::vector<int>{2, 3, 4, 5, 8, 9, 10, 11}));
  EXPECT_EQ(boxed({5}, {{2}, {3}}), (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(boxed({}, {}), (std::vector<int>{0}));
  EXPECT_EQ(boxed({3, 4}, {{3, 0}, {0, 4}}), (std::vector<int>{}));
}

TEST(CopyBox, ABoxThatLeavesTheTensorIsRefused) {
  EXPECT_THAT(error_of([] {
                boxed({3, 4}, {{2, 0}, {2, 4}});
              }),
              HasSubstr("x has 3 elements along dimension 0; 2 from 2 on are asked for"));
  EXPECT_THAT(error_of([] { boxed({3, 4}, {{2}, {1}}); }), HasSubstr("x has 2 dimensions"));
}

}  // namespace
}  // namespace phx
