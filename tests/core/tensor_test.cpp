#include "phalanx/core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

Tensor counted(const Shape& shape, DType dtype = DType::f32) {  // 0, 1, 2, ..
  std::vector<double> values(size_t(shape.numel()));
  std::iota(values.begin(), values.end(), 0.0);
  return from_values(values, shape, dtype, test_device());
}

TEST(Tensor, RowsAndReshapesAreViewsOfTheSameBytes) {
  const Tensor x = counted({4, 3});
  const Tensor middle = x.rows(1, 2);  // [2, 3]
  EXPECT_TRUE(middle.same_storage(x));
  EXPECT_EQ(to_values(middle), (std::vector<double>{3, 4, 5, 6, 7, 8}));
  const Tensor last = middle.reshape({kOpenDim, 2}).rows(2, 1);  // [1, 2]: the offset adds up
  EXPECT_EQ(to_values(last), (std::vector<double>{7, 8}));
  last.data<float>()[0] = 70;
  EXPECT_EQ(to_values(x)[7], 70.0);
  EXPECT_FALSE(x.sole_owner());
}

TEST(Tensor, AReshapeThatDoesNotFitIsToldWithBothCounts) {
  const Tensor x = counted({4, 3});
  EXPECT_EQ(error_of([&] {
              x.reshape({5, kOpenDim});
            }),
            "reshape: [4, 3] has 12 elements, which the given dimensions (5) do not divide");
  EXPECT_EQ(error_of([&] {
              x.reshape({2, 5});
            }),
            "reshape: [4, 3] has 12 elements, but [2, 5] has 10");
  EXPECT_THROW(x.reshape({0, kOpenDim}), Error);
}

TEST(Tensor, RowsOutsideAreRefused) {
  const Tensor x = counted({4, 3});
  EXPECT_EQ(x.rows(4, 0).numel(), 0);
  EXPECT_EQ(error_of([&] { x.rows(3, 2); }), "rows: [3, 5) is outside of [4, 3]");
  EXPECT_THROW(x.rows(-1, 1), Error);
  EXPECT_THROW(x.rows(0, -1), Error);
}

TEST(Tensor, ReadingAsAnotherTypeOrReadingNothingIsABug) {
  EXPECT_NE(error_of([] { counted({1}).data<double>(); }).find("a tensor of f32 is read as f64"),
            std::string::npos);
  EXPECT_NE(error_of([] { Tensor().raw(); }).find("an undefined tensor is read"),
            std::string::npos);
  Runtime meta({.kind = DeviceKind::meta});
  const Tensor x = empty({2}, DType::f32, meta.device());
  EXPECT_NE(error_of([&] { x.raw(); }).find("a meta tensor has no data"), std::string::npos);
  EXPECT_EQ(error_of([&] { to_values(x); }), "a meta tensor has no values to read");
}

TEST(Tensor, ColumnsAreCopiedOutAndIn) {
  const Tensor x = counted({2, 5});
  Tensor part = empty({2, 2}, DType::f32, test_device());
  copy_columns(x, 3, part);
  EXPECT_EQ(to_values(part), (std::vector<double>{3, 4, 8, 9}));
  const Tensor wide = zeros({2, 4}, DType::f32, test_device());
  copy_columns(part, 1, 1, wide, 2);  // one column, from the second to the third
  EXPECT_EQ(to_values(wide), (std::vector<double>{0, 0, 4, 0, 0, 0, 9, 0}));
  EXPECT_EQ(error_of([&] { copy_columns(x, 4, part); }),
            "copy_columns: columns [4, 6) of [2, 5] f32 do not fit [2, 2] f32 at column 0");
}

TEST(Tensor, CopiesAreBetweenEqualShapesTypesAndDevices) {
  const Tensor x = counted({2});
  Tensor wide = empty({2}, DType::f64, test_device());
  EXPECT_EQ(error_of([&] { copy(x, wide); }), "copy: from [2] f32 to [2] f64");
  Runtime other;
  Tensor elsewhere = empty({2}, DType::f32, other.device());
  EXPECT_EQ(error_of([&] { copy(x, elsewhere); }),
            "copy: the tensors are on different devices; use to_device");
  const Tensor moved = to_device(x, other.device());
  EXPECT_EQ(to_values(moved), (std::vector<double>{0, 1}));
  EXPECT_TRUE(moved.device() == other.device());
}

TEST(Tensor, ValuesAreRoundedToTheTensorsType) {
  const std::vector<double> values = {257, -0.1};  // 257 has nine bits, bf16 eight
  const std::vector<double> read = to_values(from_values(values, {2}, DType::bf16, test_device()));
  EXPECT_EQ(read[0], 256.0);
  EXPECT_NEAR(read[1], -0.1, 1e-3);
  const int64_t large = (int64_t{1} << 40) + 1;
  EXPECT_EQ(to_values(from_ints(std::span(&large, 1), {1}, DType::i64, test_device()))[0],
            double(large));
  EXPECT_EQ(error_of([&] { from_values(values, {3}, DType::f32, test_device()); }),
            "2 values do not fill [3]");
}

TEST(Tensor, MemoryThatWasGivenBackIsNotReadUntilItIsTakenAgain) {
  Runtime runtime;
  const Tensor x = zeros({100}, DType::f32, runtime.device());
  const auto live = [&] { return runtime.allocator().report().live[size_t(Purpose::activations)]; };
  EXPECT_EQ(live(), 512);
  x.storage()->give_back();
  EXPECT_EQ(live(), 0);
  EXPECT_NE(error_of([&] { x.raw(); }).find("while its memory is given back"), std::string::npos);
  EXPECT_THROW(x.storage()->give_back(), Error);
  x.storage()->take_again();
  EXPECT_EQ(live(), 512);
  EXPECT_NE(x.raw(), nullptr);
  EXPECT_THROW(x.storage()->take_again(), Error);
}

TEST(Tensor, AWatchNotesStoragesAndTheirPurposeIsTheScopes) {
  Runtime runtime;
  std::vector<std::weak_ptr<Storage>> made;
  Tensor kept;
  {
    StorageWatch watch(runtime, made);
    PurposeScope purpose(runtime, Purpose::workspace);
    kept = empty({4}, DType::f32, runtime.device());
    const Tensor view = kept.rows(0, 2);  // makes none
    empty({4}, DType::f32, runtime.device());
  }
  empty({4}, DType::f32, runtime.device());
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0].lock(), kept.storage());
  EXPECT_TRUE(made[1].expired());
  EXPECT_EQ(kept.storage()->purpose(), Purpose::workspace);
}

TEST(Tensor, MayNotReachPastItsStorage) {
  const Tensor x = counted({64});
  EXPECT_NO_THROW(Tensor(x.storage(), 0, {64}, DType::f32));
  EXPECT_THROW(Tensor(x.storage(), 4, {64}, DType::f32), Error);
}

TEST(Tensor, ReshapeIsDifferentiable) {
  expect_gradients_match(
      [](std::span<const Tensor> in) {
        return in[0].reshape({2, kOpenDim});
      },
      {randn({4, 3}, Seed{1})});
}

}  // namespace
}  // namespace phx
