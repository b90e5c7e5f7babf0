// The element types of tensors, and the way from a DType at run time to a C++ type.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/core/small_float.h"

namespace phx {

enum class DType : uint8_t { f64, f32, bf16, f16, f8e4m3, f8e5m2, i64, i32, u16, u8 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return 2;
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_float(DType dtype) { return dtype <= DType::f8e5m2; }

const char* name(DType dtype);
DType dtype_from_name(std::string_view name);  // throws on an unknown name
std::ostream& operator<<(std::ostream& out, DType dtype);

// Statistics, losses, masters and main gradients: f64 for f64, else f32.
constexpr DType acc_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

template <class T>
struct AccOf {
  using type = float;
};
template <>
struct AccOf<double> {
  using type = double;
};
template <class T>
using acc_t = typename AccOf<T>::type;  // the type that arithmetic on T happens in

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, bf16>)
    return DType::bf16;
  else if constexpr (std::is_same_v<T, f16>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, f8e4m3>)
    return DType::f8e4m3;
  else if constexpr (std::is_same_v<T, f8e5m2>)
    return DType::f8e5m2;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return DType::u16;
  else
    return DType::u8;
}

// Calls f.template operator()<T>() with the C++ type of a type one computes with.
template <class F>
decltype(auto) for_float_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f.template operator()<double>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<bf16>();
    case DType::f16:
      return f.template operator()<f16>();
    default:
      throw_error(str_cat("a floating type of 16 bits or more is needed here, not ", name(dtype)));
  }
}

// The same for every type that a tensor can hold.
template <class F>
decltype(auto) for_any_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f8e4m3:
      return f.template operator()<f8e4m3>();
    case DType::f8e5m2:
      return f.template operator()<f8e5m2>();
    case DType::i64:
      return f.template operator()<int64_t>();
    case DType::i32:
      return f.template operator()<int32_t>();
    case DType::u16:
      return f.template operator()<uint16_t>();
    case DType::u8:
      return f.template operator()<uint8_t>();
    default:
      return for_float_dtype(dtype, std::forward<F>(f));
  }
}

}  // namespace phx
