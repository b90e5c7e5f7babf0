#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/elementwise.h"

namespace phx::kernels::cuda {

namespace {

using phx::cuda::load;
using phx::cuda::Pack;
using phx::cuda::store;
using phx::cuda::stream_of;

constexpr int kThreads = 256;
constexpr int kTile = 32;

template <class... Pointers>
bool aligned(int64_t bytes, const Pointers*... data) {
  return ((reinterpret_cast<uintptr_t>(data) % uintptr_t(bytes) == 0) && ...);
}

// A thread a vector of kWide elements of x and y; what is left over of n goes one by one.
template <int kWide, class X, class Y, class F>
__global__ void map_kernel(const X* x, Y* y, int64_t n, F f, bool reads_y) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (i + kWide <= n) {
    const Pack<X, kWide> in = load<kWide>(x + i);
    Pack<Y, kWide> out;
    if (reads_y) out = load<kWide>(y + i);
#pragma unroll
    for (int j = 0; j < kWide; ++j) out[j] = f(in[j], out[j]);
    store(y + i, out);
  } else {
    for (int64_t j = i; j < n; ++j) y[j] = f(x[j], y[j]);
  }
}

// y = f(x, y) element by element; f gets garbage for y unless `reads_y`.
template <class X, class Y, class F>
void map(const Tensor& on, const X* x, Y* y, F f, bool reads_y) {
  const int64_t n = on.numel();
  if (n == 0) return;
  constexpr int kWide = int(16 / std::max(sizeof(X), sizeof(Y)));
  if (aligned(16, x, y)) {
    map_kernel<kWide>
        <<<unsigned(ceil_div(n, int64_t{kThreads} * kWide)), kThreads, 0, stream_of(on)>>>(
            x, y, n, f, reads_y);
  } else {
    map_kernel<1>
        <<<unsigned(ceil_div(n, kThreads)), kThreads, 0, stream_of(on)>>>(x, y, n, f, reads_y);
  }
  PHX_CUDA_CHECK(cudaGetLastError());
}

template <class Y>
struct Cast {
  template <class X>
  __device__ Y operator()(X x, Y) const {
    return convert<Y>(x);
  }
};

template <class Y>
struct Scale {
  float factor;
  bool keep;
  template <class X>
  __device__ Y operator()(X x, Y y) const {
    return Y(keep ? float(y) + factor * float(x) : factor * float(x));
  }
};

template <class T>
struct Value {
  T value;
  __device__ T operator()(T, T) const { return value; }
};

// y = a + b, a thread a vector.
template <class T, int kWide>
__global__ void add_kernel(const T* a, const T* b, T* y, int64_t n) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (i + kWide <= n) {
    const Pack<T, kWide> left = load<kWide>(a + i), right = load<kWide>(b + i);
    Pack<T, kWide> out;
#pragma unroll
    for (int j = 0; j < kWide; ++j) out[j] = T(float(left[j]) + float(right[j]));
    store(y + i, out);
  } else {
    for (int64_t j = i; j < n; ++j) y[j] = T(float(a[j]) + float(b[j]));
  }
}

// [a, b, inner] -> [b, a, inner] in units U: a thread a unit written, neighbours write neighbours.
template <class U>
__global__ void swap_kernel(const U* __restrict__ x, U* __restrict__ y, int64_t a, int64_t b,
                            int64_t inner) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= a * b * inner) return;
  const int64_t row = at / inner, j = row / a, i = row % a;
  y[at] = x[(i * b + j) * inner + at % inner];
}

// [a, b] -> [b, a] through a tile in shared memory, so that reads and writes both run along rows. A
// block of 32 x 8 threads moves a tile of 32 x 32; the extra column keeps columns in different
// banks.
template <class U>
__global__ void transpose_kernel(const U* __restrict__ x, U* __restrict__ y, int64_t a, int64_t b,
                                 int64_t tiles_across) {
  __shared__ U tile[kTile][kTile + 1];
  const int64_t i0 = blockIdx.x / tiles_across * kTile, j0 = blockIdx.x % tiles_across * kTile;
  for (int row = threadIdx.y; row < kTile; row += 8) {
    const int64_t i = i0 + row, j = j0 + threadIdx.x;
    if (i < a && j < b) tile[row][threadIdx.x] = x[i * b + j];
  }
  __syncthreads();
  for (int row = threadIdx.y; row < kTile; row += 8) {
    const int64_t j = j0 + row, i = i0 + threadIdx.x;
    if (i < a && j < b) y[j * a + i] = tile[threadIdx.x][row];
  }
}

template <class U>
void transpose_units(const Tensor& x, Tensor& y, int64_t inner) {
  const int64_t a = x.dim(0), b = x.dim(1);
  const U* in = static_cast<const U*>(x.raw());
  U* out = static_cast<U*>(y.raw());
  if (inner == 1) {
    const int64_t across = ceil_div(b, kTile);
    const dim3 block(kTile, 8);
    transpose_kernel<<<unsigned(across * ceil_div(a, kTile)), block, 0, stream_of(x)>>>(in, out, a,
                                                                                        b, across);
  } else {
    swap_kernel<<<unsigned(ceil_div(a * b * inner, kThreads)), kThreads, 0, stream_of(x)>>>(
        in, out, a, b, inner);
  }
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void cast(const Tensor& x, Tensor& y) {
  for_any_dtype(x.dtype(), [&]<class X>() {
    for_any_dtype(y.dtype(),
                  [&]<class Y>() { map(x, x.data<X>(), y.data<Y>(), Cast<Y>{}, false); });
  });
}

void transpose(const Tensor& x, Tensor& y) {
  const int64_t size = size_of(x.dtype()), inner = x.numel() / (x.dim(0) * x.dim(1));
  if (inner > 1 && inner * size % 16 == 0 && aligned(16, x.raw(), y.raw()))
    return transpose_units<uint4>(x, y, inner * size / 16);
  switch (size) {
    case 1:
      return transpose_units<uint8_t>(x, y, inner);
    case 2:
      return transpose_units<uint16_t>(x, y, inner);
    case 4:
      return transpose_units<uint32_t>(x, y, inner);
    default:
      return transpose_units<uint64_t>(x, y, inner);
  }
}

void add(const Tensor& a, const Tensor& b, Tensor& y) {
  const int64_t n = a.numel();
  if (n == 0) return;
  for_gpu_dtype(a.dtype(), [&]<class T>() {
    constexpr int kWide = 16 / sizeof(T);
    if (aligned(16, a.raw(), b.raw(), y.raw()))
      add_kernel<T, kWide>
          <<<unsigned(ceil_div(n, int64_t{kThreads} * kWide)), kThreads, 0, stream_of(a)>>>(
              a.data<T>(), b.data<T>(), y.data<T>(), n);
    else
      add_kernel<T, 1><<<unsigned(ceil_div(n, kThreads)), kThreads, 0, stream_of(a)>>>(
          a.data<T>(), b.data<T>(), y.data<T>(), n);
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void scale(const Tensor& x, double factor, const Sink& y) {
  const bool keep = y.beta != 0.f;
  for_gpu_dtype(x.dtype(), [&]<class X>() {
    for_gpu_dtype(y.tensor.dtype(), [&]<class Y>() {
      map(x, x.data<X>(), y.tensor.data<Y>(), Scale<Y>{float(factor), keep}, keep);
    });
  });
}

void fill(Tensor& y, double value) {
  for_any_dtype(y.dtype(), [&]<class T>() {
    map(y, y.data<T>(), y.data<T>(), Value<T>{convert<T>(value)}, false);
  });
}

}  // namespace phx::kernels::cuda
