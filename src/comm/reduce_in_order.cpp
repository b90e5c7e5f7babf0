#include "phalanx/comm/reduce_in_order.h"

#include <algorithm>
#include <type_traits>

namespace phx {

namespace {

constexpr int64_t kTile = 2048;  // elements whose sums stay in the first-level cache

template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, T, acc_t<T>>;

template <class T>
void reduce_tile(std::span<const void* const> in, void* out, int64_t begin, int64_t n,
                 ReduceOp op) {
  alignas(64) Sum<T> acc[kTile];
  const T* first = static_cast<const T*>(in[0]) + begin;
  for (int64_t i = 0; i < n; ++i) acc[i] = Sum<T>(first[i]);
  for (const void* contribution : in.subspan(1)) {
    const T* x = static_cast<const T*>(contribution) + begin;
    if (op == ReduceOp::sum) {
      for (int64_t i = 0; i < n; ++i) acc[i] = Sum<T>(acc[i] + Sum<T>(x[i]));
    } else {
      for (int64_t i = 0; i < n; ++i) {
        const Sum<T> value(x[i]);
        acc[i] = (value > acc[i] || value != value) ? value : acc[i];  // a NaN stays
      }
    }
  }
  T* y = static_cast<T*>(out) + begin;
  for (int64_t i = 0; i < n; ++i) y[i] = T(acc[i]);
}

}  // namespace

void reduce_in_order(std::span<const void* const> in, void* out, int64_t n, DType dtype,
                     ReduceOp op, ThreadPool& threads) {
  for_any_dtype(dtype, [&]<class T>() {
    threads.parallel_for(n, 4 * kTile, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; at += kTile)
        reduce_tile<T>(in, out, at, std::min(kTile, end - at), op);
    });
  });
}

}  // namespace phx
