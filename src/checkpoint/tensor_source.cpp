#include "checkpoint/tensor_source.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "core/shape.h"

namespace phx {

namespace {

constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{
    {DType::f64, "F64"},
    {DType::f32, "F32"},
    {DType::bf16, "BF16"},
    {DType::f16, "F16"},
    {DType::f8e4m3, "F8_E4M3"},
    {DType::f8e5m2, "F8_E5M2"},
    {DType::i64, "I64"},
    {DType::i32, "I32"},
    {DType::u16, "U16"},
    {DType::u8, "U8"},
}};

}  // namespace

std::string safetensors_dtype(DType dtype) {
  for (const auto& [known, name] : kNames)
    if (known == dtype) return std::string(name);
  return "";
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const auto& [dtype, known] : kNames)
    if (known == name) return dtype;
  return std::nullopt;
}

std::string describe(const TensorInfo& info) {
  std::string text = safetensors_dtype(info.dtype) + " [";
  for (size_t i = 0; i < info.shape.size(); ++i) text += str_cat(i > 0 ? ", " : "", info.shape[i]);
  return text + "]";
}

int64_t Box::numel() const {
  int64_t count = 1;
  for (const int64_t extent : size) count *= extent;
  return count;
}

Box whole_box(const std::vector<int64_t>& shape) {
  return {.begin = std::vector<int64_t>(shape.size(), 0), .size = shape};
}

void convert_floats(DType given, std::span<const std::byte> from, DType wanted,
                    std::span<std::byte> to) {
  const int64_t count = int64_t(from.size()) / size_of(given);
  PHX_ASSERT(int64_t(to.size()) == count * size_of(wanted), "room for another number of elements");
  for_float_dtype(given, [&]<class From>() {
    for_float_dtype(wanted, [&]<class To>() {
      for (int64_t i = 0; i < count; ++i) {
        From value;  // bytes from a file lie at any address
        std::memcpy(&value, from.data() + i * int64_t(sizeof(From)), sizeof(From));
        const To result = To(acc_t<To>(acc_t<From>(value)));
        std::memcpy(to.data() + i * int64_t(sizeof(To)), &result, sizeof(To));
      }
    });
  });
}

}  // namespace phx
