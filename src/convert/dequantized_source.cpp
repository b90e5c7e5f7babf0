#include "phalanx/convert/dequantized_source.h"

#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/core/small_float.h"

namespace phx {
namespace {

constexpr const char* kFactors = "_scale_inv";

std::vector<float> floats_of(const TensorSource& source, const std::string& name, const Box& box) {
  const DType given = source.tensors().at(name).dtype;
  const auto count = size_t(box.numel());
  std::vector<std::byte> raw(count * size_t(size_of(given)));
  source.read(name, box, raw);
  std::vector<float> wide(count);
  if (given != DType::f8e4m3) {
    convert_floats(given, raw, DType::f32, std::as_writable_bytes(std::span(wide)));
    return wide;
  }
  for (size_t i = 0; i < count; ++i) {
    f8e4m3 value;
    std::memcpy(&value, &raw[i], 1);
    wide[i] = float(value);
  }
  return wide;
}

}  // namespace

DequantizedSource::DequantizedSource(std::shared_ptr<const TensorSource> source,
                                     const Fp8Blocks& blocks)
    : source_(std::move(source)), blocks_(blocks) {
  const TensorInfos& given = source_->tensors();
  for (const auto& [name, info] : given) {
    if (name.ends_with(kFactors) &&
        given.contains(name.substr(0, name.size() - std::string_view(kFactors).size())))
      continue;
    tensors_[name] = info;
    if (info.dtype != DType::f8e4m3) continue;
    const auto factors = given.find(name + kFactors);
    PHX_CHECK(factors != given.end(), description(), ": ", name, " is FP8, but there is no ", name,
              kFactors, " with the factors of its blocks");
    PHX_CHECK(info.shape.size() == 2, description(), ": ", name,
              " is FP8 and no matrix: ", describe(info));
    const std::vector<int64_t> wanted = {ceil_div(info.shape[0], blocks_.rows),
                                         ceil_div(info.shape[1], blocks_.cols)};
    PHX_CHECK(factors->second.shape == wanted, description(), ": ", name, " is ", describe(info),
              " in blocks of ", blocks_.rows, " x ", blocks_.cols, ", but its factors are ",
              describe(factors->second));
    tensors_[name].dtype = DType::bf16;
  }
}

void DequantizedSource::read(const std::string& name, const Box& box,
                             std::span<std::byte> out) const {
  const auto found = source_->tensors().find(name);
  PHX_CHECK(found != source_->tensors().end(), description(), " has no tensor ", name);
  if (found->second.dtype != DType::f8e4m3) return source_->read(name, box, out);
  const int64_t first_row = box.begin[0] / blocks_.rows, first_col = box.begin[1] / blocks_.cols;
  const Box factor_box{.begin = {first_row, first_col},
                       .size = {ceil_div(box.begin[0] + box.size[0], blocks_.rows) - first_row,
                                ceil_div(box.begin[1] + box.size[1], blocks_.cols) - first_col}};
  if (box.numel() == 0) return;
  std::vector<float> values = floats_of(*source_, name, box);
  const std::vector<float> factors = floats_of(*source_, name + kFactors, factor_box);
  for (int64_t row = 0; row < box.size[0]; ++row)
    for (int64_t col = 0; col < box.size[1]; ++col) {
      const int64_t block_row = (box.begin[0] + row) / blocks_.rows - first_row;
      const int64_t block_col = (box.begin[1] + col) / blocks_.cols - first_col;
      values[size_t(row * box.size[1] + col)] *=
          factors[size_t(block_row * factor_box.size[1] + block_col)];
    }
  convert_floats(DType::f32, std::as_bytes(std::span(values)), DType::bf16, out);
}

}  // namespace phx
