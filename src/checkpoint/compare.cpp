#include "phalanx/checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "phalanx/base/distance.h"
#include "phalanx/base/error.h"
#include "phalanx/checkpoint/read_tensors.h"

namespace phx {

namespace {

constexpr int64_t kSlabBytes = 16 << 20;

// f(element as double) for every element; whole numbers of 64 bits are rounded.
template <class F>
void for_elements(DType dtype, std::span<const std::byte> bytes, F&& f) {
  for_any_dtype(dtype, [&]<class T>() {
    for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, bytes.data() + at, sizeof(T));
      if constexpr (std::is_arithmetic_v<T>) {
        f(double(value));
      } else {
        f(double(float(value)));
      }
    }
  });
}

// Nothing if the two are equal.
TensorDifference difference(const TensorSource& a, const TensorSource& b, const std::string& name,
                            const TensorInfo& info) {
  TensorDifference result{name, "", 0};
  int64_t different = 0, all = 0;
  std::vector<std::byte> left, right;
  for_each_slab(info, kSlabBytes, [&](const Box& slab) {
    left.resize(size_t(slab.numel() * size_of(info.dtype)));
    right.resize(left.size());
    a.read(name, slab, left);
    b.read(name, slab, right);
    all += slab.numel();
    if (left == right) return;
    const size_t size = size_t(size_of(info.dtype));
    const auto x = values_of(info.dtype, left), y = values_of(info.dtype, right);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::memcmp(left.data() + i * size, right.data() + i * size, size) == 0) continue;
      ++different;
      result.largest = std::max(result.largest, distance(x[i], y[i]));
    }
  });
  if (different > 0) result.what = str_cat(different, " of ", all, " elements");
  return result;
}

}  // namespace

TensorStatistics statistics(const TensorSource& source, const std::string& name) {
  const TensorInfo& info = source.tensors().at(name);
  TensorStatistics result{.least = std::numeric_limits<double>::infinity(),
                          .most = -std::numeric_limits<double>::infinity()};
  // Welford's recurrence: a variance that is small beside the mean keeps its digits.
  double count = 0, squares = 0;
  std::vector<std::byte> bytes;
  for_each_slab(info, kSlabBytes, [&](const Box& slab) {
    bytes.resize(size_t(slab.numel() * size_of(info.dtype)));
    source.read(name, slab, bytes);
    for_elements(info.dtype, bytes, [&](double value) {
      if (!std::isfinite(value)) {
        ++result.not_finite;
        return;
      }
      result.zeros += value == 0;
      result.least = std::min(result.least, value);
      result.most = std::max(result.most, value);
      count += 1;
      const double from_mean = value - result.mean;
      result.mean += from_mean / count;
      squares += from_mean * (value - result.mean);
    });
  });
  if (count == 0) result.least = result.most = 0;
  if (count > 0) result.deviation = std::sqrt(squares / count);
  return result;
}

std::vector<TensorDifference> differences(const TensorSource& a, const TensorSource& b) {
  std::vector<TensorDifference> result;
  for (const auto& [name, info] : a.tensors()) {
    const auto other = b.tensors().find(name);
    if (other == b.tensors().end()) {
      result.push_back({name, "only in the first", 0});
    } else if (!(info == other->second)) {
      result.push_back({name, str_cat(describe(info), " and ", describe(other->second)), 0});
    } else if (TensorDifference found = difference(a, b, name, info); !found.what.empty()) {
      result.push_back(std::move(found));
    }
  }
  for (const auto& [name, info] : b.tensors())
    if (!a.tensors().contains(name)) result.push_back({name, "only in the second", 0});
  std::ranges::sort(result, {}, &TensorDifference::name);
  return result;
}

}  // namespace phx
