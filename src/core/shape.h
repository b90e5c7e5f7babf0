// The extents of a tensor: up to six dimensions, row-major, printed as [4, 2, 8].
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "phalanx/base/error.h"

namespace phx {

inline constexpr int64_t kOpenDim = -1;  // in reshape: whatever is left

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    PHX_CHECK(dims.size() <= kMaxRank, "a tensor has at most ", kMaxRank, " dimensions, not ",
              dims.size());
    for (int64_t dim : dims) push_back(dim);
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[index(i)]; }  // i < 0 counts from the end
  void set(int i, int64_t dim) { dims_[index(i)] = dim; }
  void push_back(int64_t dim) {
    PHX_CHECK(dim >= kOpenDim, "a dimension cannot be ", dim);
    dims_[rank_++] = dim;
  }

  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  Shape without_last() const { return Shape(std::span(dims_.data(), rank_ - 1)); }
  Shape with_last(int64_t dim) const {
    Shape shape = *this;
    shape.set(-1, dim);
    return shape;
  }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  bool operator==(const Shape& other) const {
    return rank_ == other.rank_ && dims_ == other.dims_;  // unused entries are always zero
  }

 private:
  int index(int i) const {
    const int at = i < 0 ? i + rank_ : i;
    PHX_CHECK(at >= 0 && at < rank_, "a tensor of rank ", rank_, " has no dimension ", i);
    return at;
  }

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

}  // namespace phx
