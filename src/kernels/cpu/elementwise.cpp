#include "phalanx/kernels/elementwise.h"

#include <cstring>

#include "phalanx/kernels/cpu/loops.h"

namespace phx::kernels::cpu {

void cast(const Tensor& x, Tensor& y) {
  for_any_dtype(x.dtype(), [&]<class X>() {
    for_any_dtype(y.dtype(), [&]<class Y>() {
      const X* in = x.data<X>();
      Y* out = y.data<Y>();
      for_elements(x, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = convert<Y>(in[i]);
      });
    });
  });
}

namespace {

// Tiles of 32 x 32 elements: both the rows read and the rows written stay in the first cache.
template <class T>
void transpose_matrix(const Tensor& x, Tensor& y) {
  constexpr int64_t kTile = 32;
  const int64_t a = x.dim(0), b = x.dim(1);
  const T* in = static_cast<const T*>(x.raw());
  T* out = static_cast<T*>(y.raw());
  for_rows(x, ceil_div(b, kTile), kTile * a, [&](int64_t tile) {
    const int64_t j0 = tile * kTile, j1 = std::min(b, j0 + kTile);
    for (int64_t i0 = 0; i0 < a; i0 += kTile) {
      const int64_t i1 = std::min(a, i0 + kTile);
      for (int64_t j = j0; j < j1; ++j)
        for (int64_t i = i0; i < i1; ++i) out[j * a + i] = in[i * b + j];
    }
  });
}

}  // namespace

void transpose(const Tensor& x, Tensor& y) {
  const int64_t a = x.dim(0), b = x.dim(1), inner = x.numel() / (a * b);
  if (inner == 1) {
    switch (size_of(x.dtype())) {
      case 1:
        return transpose_matrix<uint8_t>(x, y);
      case 2:
        return transpose_matrix<uint16_t>(x, y);
      case 4:
        return transpose_matrix<uint32_t>(x, y);
      default:
        return transpose_matrix<uint64_t>(x, y);
    }
  }
  const int64_t bytes = inner * size_of(x.dtype());
  const auto* in = static_cast<const std::byte*>(x.raw());
  auto* out = static_cast<std::byte*>(y.raw());
  for_rows(x, b, a * inner, [&](int64_t j) {
    for (int64_t i = 0; i < a; ++i)
      std::memcpy(out + (j * a + i) * bytes, in + (i * b + j) * bytes, size_t(bytes));
  });
}

void add(const Tensor& a, const Tensor& b, Tensor& y) {
  for_float_dtype(a.dtype(), [&]<class T>() {
    using Acc = acc_t<T>;
    const T *left = a.data<T>(), *right = b.data<T>();
    T* out = y.data<T>();
    for_elements(a, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out[i] = T(Acc(left[i]) + Acc(right[i]));
    });
  });
}

void scale(const Tensor& x, double factor, const Sink& y) {
  for_float_dtype(x.dtype(), [&]<class X>() {
    for_float_dtype(y.tensor.dtype(), [&]<class Y>() {
      using Acc = acc_t<Y>;
      const X* in = x.data<X>();
      Y* out = y.tensor.data<Y>();
      const Acc by = Acc(factor);
      for_elements(x, [&](int64_t begin, int64_t end) {
        if (y.beta != 0.f) {
          for (int64_t i = begin; i < end; ++i) out[i] = Y(Acc(out[i]) + by * Acc(in[i]));
        } else {
          for (int64_t i = begin; i < end; ++i) out[i] = Y(by * Acc(in[i]));
        }
      });
    });
  });
}

void fill(Tensor& y, double value) {
  for_any_dtype(y.dtype(), [&]<class T>() {
    T* out = y.data<T>();
    const T element = convert<T>(value);
    for_elements(y,
                 [&](int64_t begin, int64_t end) { std::fill(out + begin, out + end, element); });
  });
}

}  // namespace phx::kernels::cpu
