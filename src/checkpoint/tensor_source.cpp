#include "phalanx/checkpoint/tensor_source.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "phalanx/base/error.h"
#include "phalanx/core/shape.h"

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

// Of the floats on both sides of `value` the one with an odd last bit, or `value` itself: what is
// rounded from there to 16 bits is what rounding `value` would have given.
float rounded_to_odd(double value) {
  const float near = float(value);
  if (double(near) == value || std::isnan(value)) return near;
  if ((std::bit_cast<uint32_t>(near) & 1) == 1) return near;
  return std::nextafter(near, double(near) < value ? INFINITY : -INFINITY);
}

template <class To, class From>
To rounded(From value) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2)
    return To(rounded_to_odd(value));
  else
    return To(acc_t<To>(value));
}

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

void for_each_slab(const TensorInfo& info, int64_t bytes,
                   const std::function<void(const Box&)>& f) {
  const auto& shape = info.shape;
  const int64_t most = std::max<int64_t>(bytes / size_of(info.dtype), 1);
  Box box = whole_box(shape);
  int64_t behind = box.numel();
  if (behind == 0) return;
  // The first axes are taken one by one until what is behind fits; the next one in slices.
  size_t cut = 0;
  while (cut < shape.size() && behind / shape[cut] > most) behind /= shape[cut++];
  if (cut == shape.size()) return f(box);  // one element
  behind /= shape[cut];
  for (size_t i = 0; i < cut; ++i) box.size[i] = 1;
  while (true) {
    box.size[cut] = std::min(std::max<int64_t>(most / behind, 1), shape[cut] - box.begin[cut]);
    f(box);
    box.begin[cut] += box.size[cut];
    for (size_t axis = cut; box.begin[axis] == shape[axis];) {
      if (axis == 0) return;
      box.begin[axis--] = 0;
      ++box.begin[axis];
    }
  }
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
        const To result = rounded<To>(acc_t<From>(value));
        std::memcpy(to.data() + i * int64_t(sizeof(To)), &result, sizeof(To));
      }
    });
  });
}

}  // namespace phx
