#include "convert/compare_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "convert/hf_writer.h"

namespace phx {
namespace {

constexpr int64_t kSlabBytes = 8 << 20;

void read_doubles(const TensorSource& source, const std::string& name, const Box& box,
                  std::vector<std::byte>& bytes, std::vector<double>& values) {
  const DType dtype = source.tensors().at(name).dtype;
  bytes.resize(size_t(box.numel() * size_of(dtype)));
  source.read(name, box, bytes);
  values.resize(size_t(box.numel()));
  for_any_dtype(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_integral_v<T>)
        values[i] = double(value);
      else
        values[i] = double(acc_t<T>(value));
    }
  });
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

TensorDifference compare_tensor(const TensorSource& a, const TensorSource& b,
                                const std::string& name) {
  TensorDifference result{.name = name};
  std::vector<std::byte> bytes;
  std::vector<double> x, y;
  for_slabs(a.tensors().at(name), kSlabBytes, [&](const Box& box) {
    read_doubles(a, name, box, bytes, x);
    read_doubles(b, name, box, bytes, y);
    result.elements += int64_t(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double apart = distance(x[i], y[i]);
      result.differing += apart != 0;
      result.largest = std::max(result.largest, apart);
      if (std::isfinite(y[i])) result.scale = std::max(result.scale, std::abs(y[i]));
    }
  });
  return result;
}

}  // namespace

bool Comparison::equal() const {
  return only_a.empty() && only_b.empty() && shapes.empty() &&
         std::ranges::all_of(tensors, [](const TensorDifference& t) { return t.differing == 0; });
}

const TensorDifference* Comparison::worst() const {
  const auto found = std::ranges::max_element(tensors, {}, &TensorDifference::largest);
  return found == tensors.end() ? nullptr : &*found;
}

Comparison compare_tensors(const TensorSource& a, const TensorSource& b) {
  Comparison result;
  for (const auto& [name, info] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end()) {
      result.only_a.push_back(name);
    } else if (other->second.shape != info.shape) {
      result.shapes.push_back(
          str_cat(name, ": ", describe(info), " and ", describe(other->second)));
    } else {
      result.tensors.push_back(compare_tensor(a, b, name));
    }
  }
  for (const auto& [name, info] : b.tensors())
    if (!a.tensors().contains(name)) result.only_b.push_back(name);
  return result;
}

}  // namespace phx
