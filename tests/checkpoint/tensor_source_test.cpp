#include "phalanx/checkpoint/tensor_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(TensorSource, SlabsAreATensorInOrderWhateverTheirSize) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {7}, {3, 5}, {2, 3, 4}, {1, 6, 1, 2}, {4, 0, 2}}) {
    for (int64_t bytes = 1; bytes < 100; bytes += 3) {
      std::vector<int64_t> order;  // global places of the elements
      for_each_slab({DType::i32, shape}, bytes, [&](const Box& slab) {
        EXPECT_LE(slab.numel() * 4, std::max<int64_t>(bytes, 4));
        for (int64_t i = 0; i < slab.numel(); ++i) {
          int64_t rest = i, place = 0, scale = 1;
          for (size_t axis = shape.size(); axis-- > 0;) {
            place += (slab.begin[axis] + rest % slab.size[axis]) * scale;
            rest /= slab.size[axis];
            scale *= shape[axis];
          }
          order.push_back(place);
        }
      });
      ASSERT_EQ(int64_t(order.size()), whole_box(shape).numel());
      for (size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], int64_t(i));
    }
  }
}

TEST(TensorSource, TypesHaveTheNamesOfSafetensors) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16, DType::f8e4m3,
                            DType::f8e5m2, DType::i64, DType::i32, DType::u16, DType::u8})
    EXPECT_EQ(dtype_of_safetensors(safetensors_dtype(dtype)), dtype);
  EXPECT_EQ(safetensors_dtype(DType::f8e4m3), "F8_E4M3");
  EXPECT_EQ(dtype_of_safetensors("I8"), std::nullopt);
  EXPECT_EQ(describe({DType::bf16, {4096, 1024}}), "BF16 [4096, 1024]");
  EXPECT_EQ(describe({DType::f32, {}}), "F32 []");
}

template <class From, class To>
To converted(From value) {
  To result;
  convert_floats(dtype_of<From>(), std::as_bytes(std::span(&value, 1)), dtype_of<To>(),
                 std::as_writable_bytes(std::span(&result, 1)));
  return result;
}

TEST(TensorSource, FloatsAreRoundedToTheNearest) {
  EXPECT_EQ(float(converted<float, bf16>(1.0f + 0x1p-8f)), 1.0f);  // a tie, to even
  EXPECT_EQ(float(converted<float, bf16>(1.0f + 0x1p-8f + 0x1p-20f)), 1.0f + 0x1p-7f);
  EXPECT_EQ(float(converted<float, f16>(65520.0f)), std::numeric_limits<float>::infinity());
  EXPECT_EQ((converted<bf16, float>(bf16(-3.5f))), -3.5f);
  EXPECT_EQ((converted<double, float>(1.0 + 0x1p-30)), 1.0f);
  EXPECT_EQ((converted<float, double>(0.1f)), double(0.1f));
}

// By way of f32 the last bit of a double is lost, and what is left is a tie.
TEST(TensorSource, DoublesAreRoundedOnce) {
  EXPECT_EQ(float(converted<double, bf16>(1.0 + 0x1p-8 + 0x1p-40)), 1.0f + 0x1p-7f);
  EXPECT_EQ(float(converted<double, bf16>(1.0 + 0x1p-7 + 0x1p-8 - 0x1p-40)), 1.0f + 0x1p-7f);
  EXPECT_EQ(float(converted<double, bf16>(-(1.0 + 0x1p-8 + 0x1p-40))), -(1.0f + 0x1p-7f));
  EXPECT_EQ(float(converted<double, f16>(1.0 + 0x1p-11 + 0x1p-40)), 1.0f + 0x1p-10f);
  EXPECT_EQ(float(converted<double, f16>(1e300)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float(converted<double, bf16>(0x1.fep127)), 0x1.fep127f);  // the largest
  EXPECT_TRUE(std::isnan(float(converted<double, bf16>(NAN))));
}

TEST(TensorSource, BytesMayLieAtAnyAddress) {
  std::vector<std::byte> from(4 * 3 + 1), to(2 * 3 + 1);
  const float numbers[] = {1, -2, 3};
  std::memcpy(from.data() + 1, numbers, sizeof numbers);
  convert_floats(DType::f32, std::span(from).subspan(1), DType::bf16, std::span(to).subspan(1));
  bf16 read[3];
  std::memcpy(read, to.data() + 1, sizeof read);
  EXPECT_EQ(float(read[1]), -2.0f);
  EXPECT_EQ(float(read[2]), 3.0f);
  EXPECT_THROW(convert_floats(DType::f32, from, DType::bf16, to), std::exception);
}

}  // namespace
}  // namespace phx
