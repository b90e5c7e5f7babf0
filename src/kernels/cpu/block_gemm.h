// Small matrix products on blocks that lie in a cache, for kernels that work block by block. Each
// element is a chain of fused multiply-adds in the order of k, whatever the vector width, so
// results do not depend on the machine.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#endif

namespace phx::kernels::cpu {

inline constexpr int kVectorBytes = 32;
template <class T>
inline constexpr int kTile = 2 * kVectorBytes / int(sizeof(T));  // columns: two vectors

// a(i, k) = data[i * row + k * col]: either way of storing serves, its elements are broadcast.
template <class T>
struct Strided {
  const T* data;
  int64_t row, col;
};

namespace detail {

template <class T>
using Vec [[gnu::vector_size(kVectorBytes)]] = T;

template <class T>
inline Vec<T> multiply_add(T a, Vec<T> b, Vec<T> c) {
  const Vec<T> wide = a - Vec<T>{};
#if defined(__AVX2__) && defined(__FMA__)
  if constexpr (std::is_same_v<T, float>)
    return Vec<T>(_mm256_fmadd_ps(__m256(wide), __m256(b), __m256(c)));
  else
    return Vec<T>(_mm256_fmadd_pd(__m256d(wide), __m256d(b), __m256d(c)));
#else
  for (int i = 0; i < kVectorBytes / int(sizeof(T)); ++i) c[i] = std::fma(wide[i], b[i], c[i]);
  return c;
#endif
}

// kRows x kTile of C in registers.
template <class T, int kRows>
inline void block_tile(int64_t depth, const Strided<T>& a, const T* b, int64_t ldb, T* c,
                       int64_t ldc, bool accumulate) {
  constexpr int kHalf = kTile<T> / 2;
  Vec<T> sum[kRows][2];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    Vec<T>* from = reinterpret_cast<Vec<T>*>(c + i * ldc);
    sum[i][0] = accumulate ? from[0] : Vec<T>{};
    sum[i][1] = accumulate ? from[1] : Vec<T>{};
  }
  for (int64_t k = 0; k < depth; ++k) {
    const Vec<T> b0 = *reinterpret_cast<const Vec<T>*>(b + k * ldb);
    const Vec<T> b1 = *reinterpret_cast<const Vec<T>*>(b + k * ldb + kHalf);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const T value = a.data[i * a.row + k * a.col];
      sum[i][0] = multiply_add<T>(value, b0, sum[i][0]);
      sum[i][1] = multiply_add<T>(value, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    Vec<T>* to = reinterpret_cast<Vec<T>*>(c + i * ldc);
    to[0] = sum[i][0];
    to[1] = sum[i][1];
  }
}

}  // namespace detail

// C [rows, columns] = A [rows, depth] B [depth, columns], or += with `accumulate`. `columns` is a
// multiple of kTile; rows of B and C are aligned to kVectorBytes.
template <class T>
void block_gemm(int64_t rows, int64_t columns, int64_t depth, Strided<T> a, const T* b, int64_t ldb,
                T* c, int64_t ldc, bool accumulate) {
  constexpr int kRows = 6;  // 12 sums, 2 of B and a broadcast fill 15 of 16 registers
  int64_t i = 0;
  auto strip = [&]<int kCount>() {
    const Strided<T> part{a.data + i * a.row, a.row, a.col};
    for (int64_t j = 0; j < columns; j += kTile<T>)
      detail::block_tile<T, kCount>(depth, part, b + j, ldb, c + i * ldc + j, ldc, accumulate);
    i += kCount;
  };
  while (i + kRows <= rows) strip.template operator()<kRows>();
  while (i + 4 <= rows) strip.template operator()<4>();
  while (i + 2 <= rows) strip.template operator()<2>();
  while (i < rows) strip.template operator()<1>();
}

}  // namespace phx::kernels::cpu
