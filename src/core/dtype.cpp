#include "phalanx/core/dtype.h"

#include <array>

namespace phx {

namespace {
constexpr std::array<const char*, 10> kNames = {"f64",    "f32", "bf16", "f16", "f8e4m3",
                                                "f8e5m2", "i64", "i32",  "u16", "u8"};
}

const char* name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

DType dtype_from_name(std::string_view wanted) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (wanted == kNames[i]) return static_cast<DType>(i);
  throw_error(str_cat("there is no dtype '", wanted,
                      "'; the dtypes are f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 u16 u8"));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

}  // namespace phx
