#include "phalanx/checkpoint/torch/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "phalanx/base/error.h"

namespace phx {

// Far beyond any tensor, and far enough below 2^63 for bytes to be counted without care.
constexpr int64_t kMaxElements = int64_t{1} << 56;

std::string text_of(const Dims& dims) {
  std::string text = "[";
  for (const int64_t dim : dims) text += str_cat(text.size() > 1 ? ", " : "", dim);
  return text + "]";
}

Dims dense_strides(const Dims& shape) {
  Dims strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::optional<int64_t> num_elements(const Dims& shape) {
  int64_t count = 1;
  bool fits = true;
  for (const int64_t dim : shape) {
    if (dim < 0) return std::nullopt;
    fits &= !__builtin_mul_overflow(count, dim, &count);
  }
  // An empty tensor may have other dimensions of any size.
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  if (!fits || count > kMaxElements) return std::nullopt;
  return count;
}

void check_box(const std::string& where, const TensorInfo& info, const Box& box, size_t bytes) {
  const size_t rank = info.shape.size();
  bool inside = box.begin.size() == rank && box.size.size() == rank;
  for (size_t i = 0; inside && i < rank; ++i)
    inside = box.begin[i] >= 0 && box.size[i] >= 0 && box.size[i] <= info.shape[i] &&
             box.begin[i] <= info.shape[i] - box.size[i];
  PHX_CHECK(inside, where, " is ", text_of(info.shape), "; the box of ", text_of(box.size), " at ",
            text_of(box.begin), " lies beyond it");
  const int64_t wanted = *num_elements(box.size) * size_of(info.dtype);
  PHX_CHECK(wanted == static_cast<int64_t>(bytes), where, ": the box of ", text_of(box.size),
            " is ", wanted, " bytes, but there is room for ", bytes);
}

bool overlap(const Box& a, const Box& b) {
  for (size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] >= b.begin[i] + b.size[i] || b.begin[i] >= a.begin[i] + a.size[i]) return false;
    if (a.size[i] == 0 || b.size[i] == 0) return false;
  }
  return true;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  if (!overlap(a, b)) return std::nullopt;
  Box both{a.begin, a.size};
  for (size_t i = 0; i < a.begin.size(); ++i) {
    both.begin[i] = std::max(a.begin[i], b.begin[i]);
    both.size[i] = std::min(a.begin[i] + a.size[i], b.begin[i] + b.size[i]) - both.begin[i];
  }
  return both;
}

void copy_strided(ConstStridedBytes from, StridedBytes to, const Dims& sizes, int64_t element) {
  if (std::ranges::find(sizes, 0) != sizes.end()) return;
  // The last axes that lie end to end on both sides are one run.
  size_t outer = sizes.size();
  int64_t run = 1;
  for (; outer > 0; --outer) {
    const size_t i = outer - 1;
    if (sizes[i] != 1 && (from.strides[i] != run || to.strides[i] != run)) break;
    run *= sizes[i];
  }
  Dims index(outer, 0);
  while (true) {
    std::memcpy(to.first, from.first, static_cast<size_t>(run * element));
    size_t i = outer;
    while (i-- > 0) {
      if (++index[i] < sizes[i]) {
        from.first += from.strides[i] * element;
        to.first += to.strides[i] * element;
        break;
      }
      from.first -= from.strides[i] * (sizes[i] - 1) * element;
      to.first -= to.strides[i] * (sizes[i] - 1) * element;
      index[i] = 0;
    }
    if (i == size_t(-1)) return;
  }
}

}  // namespace phx
