#include "phalanx/checkpoint/torch/strided_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(StridedCopy, SizesAreCountedAndAbsurdOnesAreNone) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
  EXPECT_EQ(num_elements({int64_t{1} << 56}), int64_t{1} << 56);
  EXPECT_EQ(num_elements({(int64_t{1} << 56) + 1}), std::nullopt);
  EXPECT_EQ(num_elements({int64_t{1} << 40, int64_t{1} << 40}), std::nullopt);
  EXPECT_EQ(num_elements({int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
  EXPECT_EQ(num_elements({3, -1, 0}), std::nullopt);
  EXPECT_EQ(dense_strides({2, 3, 4}), (Dims{12, 4, 1}));
  EXPECT_EQ(text_of({2, 3}), "[2, 3]");
  EXPECT_EQ(text_of({}), "[]");
}

TEST(StridedCopy, ABoxLiesInsideAndFillsItsRoomExactly) {
  const TensorInfo info = {DType::f32, {4, 3}};
  EXPECT_NO_THROW(check_box("x", info, {{3, 0}, {1, 3}}, 12));
  EXPECT_NO_THROW(check_box("x", info, {{4, 0}, {0, 3}}, 0));
  EXPECT_EQ(error_of([&] {
              check_box("x", info, {{2, 1}, {2, 3}}, 24);
            }),
            "x is [4, 3]; the box of [2, 3] at [2, 1] lies beyond it");
  EXPECT_EQ(error_of([&] {
              check_box("x", info, {{0, 0}, {1, 3}}, 16);
            }),
            "x: the box of [1, 3] is 12 bytes, but there is room for 16");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const Box& bad : {Box{{-1, 0}, {1, 1}}, Box{{0}, {1}}, Box{{kMost, 0}, {kMost, 1}}})
    EXPECT_THROW(check_box("x", info, bad, 4), std::exception);
}

TEST(StridedCopy, BoxesThatTouchDoNotOverlap) {
  const Box a{{0, 0}, {2, 2}};
  EXPECT_FALSE(overlap(a, {{2, 0}, {1, 2}}));
  EXPECT_FALSE(overlap(a, {{1, 1}, {1, 0}}));
  EXPECT_EQ(intersection(a, {{1, 1}, {5, 5}}), (Box{{1, 1}, {1, 1}}));
  EXPECT_EQ(intersection(a, {{0, 2}, {2, 1}}), std::nullopt);
  EXPECT_EQ(intersection(Box{}, Box{}), Box{});  // a single element
}

// Every order of the axes on both sides, against a plain loop over the indices.
TEST(StridedCopy, CopiesBetweenAllOrdersOfAxes) {
  const Dims sizes = {2, 3, 4};
  std::vector<int32_t> from(24);
  std::iota(from.begin(), from.end(), 100);
  std::vector<size_t> order = {0, 1, 2};
  do {
    Dims strides(3);  // of a tensor whose axes lie in memory in this order
    int64_t stride = 1;
    for (size_t i = 3; i-- > 0;) {
      strides[order[i]] = stride;
      stride *= sizes[order[i]];
    }
    for (const bool permuted_source : {true, false}) {
      std::vector<int32_t> to(24, -1);
      const Dims dense = dense_strides(sizes);
      const Dims& a = permuted_source ? strides : dense;
      const Dims& b = permuted_source ? dense : strides;
      copy_strided({reinterpret_cast<const std::byte*>(from.data()), a},
                   {reinterpret_cast<std::byte*>(to.data()), b}, sizes, 4);
      for (int64_t i = 0; i < 2; ++i)
        for (int64_t j = 0; j < 3; ++j)
          for (int64_t k = 0; k < 4; ++k)
            ASSERT_EQ(to[size_t(i * b[0] + j * b[1] + k * b[2])],
                      from[size_t(i * a[0] + j * a[1] + k * a[2])]);
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST(StridedCopy, OneElementOfNoAxesIsCopiedAndAnEmptyBoxIsNot) {
  const int32_t from = 7;
  int32_t to = 0;
  const Dims none;
  copy_strided({reinterpret_cast<const std::byte*>(&from), none},
               {reinterpret_cast<std::byte*>(&to), none}, {}, 4);
  EXPECT_EQ(to, 7);
  const Dims strides = {1, 1};
  copy_strided({nullptr, strides}, {nullptr, strides}, {3, 0}, 4);
}

}  // namespace
}  // namespace phx
