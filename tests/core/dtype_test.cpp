#include "phalanx/core/dtype.h"

#include <gtest/gtest.h>

#include <sstream>
#include <type_traits>

#include "support/gradients.h"

namespace phx {
namespace {

constexpr DType kAll[] = {DType::f64,    DType::f32, DType::bf16, DType::f16, DType::f8e4m3,
                          DType::f8e5m2, DType::i64, DType::i32,  DType::u16, DType::u8};

TEST(DType, EveryNameLeadsBackToItsType) {
  for (DType dtype : kAll) {
    EXPECT_EQ(dtype_from_name(name(dtype)), dtype);
    std::ostringstream out;
    out << dtype;
    EXPECT_EQ(out.str(), name(dtype));
  }
  EXPECT_STREQ(name(DType::bf16), "bf16");
  EXPECT_STREQ(name(DType::u8), "u8");
}

TEST(DType, AnUnknownNameIsToldWithAllThatThereAre) {
  EXPECT_EQ(testing::error_of([] { dtype_from_name("float"); }),
            "there is no dtype 'float'; the dtypes are f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 u16 "
            "u8");
}

TEST(DType, TheCppTypeHasTheSizeAndLeadsBack) {
  for (DType dtype : kAll) {
    for_any_dtype(dtype, [&]<class T>() {
      EXPECT_EQ(int64_t(sizeof(T)), size_of(dtype)) << dtype;
      EXPECT_EQ(dtype_of<T>(), dtype);
      const bool whole = std::is_integral_v<T>;
      EXPECT_EQ(is_float(dtype), !whole) << dtype;
    });
  }
}

TEST(DType, NobodyComputesInEightBitsOrIntegers) {
  for (DType dtype : {DType::f8e4m3, DType::f8e5m2, DType::i64, DType::u16}) {
    EXPECT_EQ(testing::error_of([&] { for_float_dtype(dtype, []<class T>() {}); }),
              str_cat("a floating type of 16 bits or more is needed here, not ", name(dtype)));
  }
}

TEST(DType, SumsAreInF32ExceptThoseOfF64) {
  EXPECT_EQ(acc_dtype(DType::f64), DType::f64);
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(acc_dtype(dtype), DType::f32);
}

}  // namespace
}  // namespace phx
