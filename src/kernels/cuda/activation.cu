#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/activation.h"
#include "phalanx/kernels/activation_math.h"
#include "phalanx/kernels/cuda/launch.cuh"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

struct CudaMath {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  static __device__ __forceinline__ float erf(float x) { return erff(x); }
  static __device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
};

// A thread takes kWide neighbouring elements of a tensor of `count` such pieces; kWide is 1 where
// the memory does not allow vectors.
template <class T, Activation kKind, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_kernel(const T* __restrict__ x, T* __restrict__ y, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const Pack<T, kWide> in = load<kWide>(x + i * kWide);
  Pack<T, kWide> out;
#pragma unroll
  for (int j = 0; j < kWide; ++j) out[j] = T(activation_at<kKind, CudaMath>(float(in[j])).value);
  store(y + i * kWide, out);
}

template <class T, Activation kKind, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx,
                             int64_t count, bool keep) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const Pack<T, kWide> in = load<kWide>(x + i * kWide), d = load<kWide>(dy + i * kWide);
  Pack<T, kWide> out;
  if (keep) out = load<kWide>(dx + i * kWide);
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    const float value = float(d[j]) * activation_at<kKind, CudaMath>(float(in[j])).slope;
    out[j] = T(keep ? float(out[j]) + value : value);
  }
  store(dx + i * kWide, out);
}

// The same over rows of f = per_row pieces; the gate and up parts of a packed row are f apart.
template <class T, Activation kKind, int kWide>
__global__ void __launch_bounds__(kThreads)
    gated_kernel(const T* __restrict__ x, T* __restrict__ y, uint32_t count, uint32_t per_row) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t f = int64_t{per_row} * kWide;
  const T* gate = x + (int64_t{i} + i / per_row * int64_t{per_row}) * kWide;  // row 2f + column
  const Pack<T, kWide> g = load<kWide>(gate), u = load<kWide>(gate + f);
  Pack<T, kWide> out;
#pragma unroll
  for (int j = 0; j < kWide; ++j)
    out[j] = T(activation_at<kKind, CudaMath>(float(g[j])).value * float(u[j]));
  store(y + int64_t{i} * kWide, out);
}

template <class T, Activation kKind, int kWide>
__global__ void __launch_bounds__(kThreads)
    gated_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dx,
                          uint32_t count, uint32_t per_row, bool keep) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const int64_t f = int64_t{per_row} * kWide;
  const int64_t at = (int64_t{i} + i / per_row * int64_t{per_row}) * kWide;
  const Pack<T, kWide> g = load<kWide>(x + at), u = load<kWide>(x + at + f);
  const Pack<T, kWide> d = load<kWide>(dy + int64_t{i} * kWide);
  Pack<T, kWide> dgate, dup;
  if (keep) {
    dgate = load<kWide>(dx + at);
    dup = load<kWide>(dx + at + f);
  }
#pragma unroll
  for (int j = 0; j < kWide; ++j) {
    const auto act = activation_at<kKind, CudaMath>(float(g[j]));
    const float to_gate = float(d[j]) * float(u[j]) * act.slope, to_up = float(d[j]) * act.value;
    dgate[j] = T(keep ? float(dgate[j]) + to_gate : to_gate);
    dup[j] = T(keep ? float(dup[j]) + to_up : to_up);
  }
  store(dx + at, dgate);
  store(dx + at + f, dup);
}

// f<T, kind, kWide>() for the type, the activation and the vector width.
template <class F>
void for_kernels(DType dtype, Activation kind, bool vectors, F&& f) {
  for_gpu_dtype(dtype, [&]<class T>() {
    for_activation(kind, [&]<Activation kKind>() {
      if (vectors)
        f.template operator()<T, kKind, kVector<T>>();
      else
        f.template operator()<T, kKind, 1>();
    });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void activate(const Tensor& x, Activation kind, Tensor& y) {
  if (x.numel() == 0) return;
  for_kernels(x.dtype(), kind, vectorizable(x.numel(), x, y),
              [&]<class T, Activation kKind, int kWide>() {
                const int64_t count = x.numel() / kWide;
                activate_kernel<T, kKind, kWide>
                    <<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
                        x.data<T>(), y.data<T>(), count);
              });
}

void activate_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  if (x.numel() == 0) return;
  for_kernels(x.dtype(), kind, vectorizable(x.numel(), x, dy, dx.tensor),
              [&]<class T, Activation kKind, int kWide>() {
                const int64_t count = x.numel() / kWide;
                activate_backward_kernel<T, kKind, kWide>
                    <<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
                        x.data<T>(), dy.data<T>(), dx.tensor.data<T>(), count, dx.beta != 0.f);
              });
}

void activate_gated(const Tensor& x, Activation kind, Tensor& y) {
  if (x.numel() == 0) return;
  const int64_t f = y.dim(-1);
  for_kernels(x.dtype(), kind, vectorizable(f, x, y), [&]<class T, Activation kKind, int kWide>() {
    const auto count = count32(y.numel() / kWide);
    gated_kernel<T, kKind, kWide><<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
        x.data<T>(), y.data<T>(), count, uint32_t(f / kWide));
  });
}

void activate_gated_backward(const Tensor& x, const Tensor& dy, Activation kind, const Sink& dx) {
  if (x.numel() == 0) return;
  const int64_t f = dy.dim(-1);
  for_kernels(x.dtype(), kind, vectorizable(f, x, dy, dx.tensor),
              [&]<class T, Activation kKind, int kWide>() {
                const auto count = count32(dy.numel() / kWide);
                gated_backward_kernel<T, kKind, kWide>
                    <<<blocks_for(count, kThreads), kThreads, 0, stream_of(x)>>>(
                        x.data<T>(), dy.data<T>(), dx.tensor.data<T>(), count, uint32_t(f / kWide),
                        dx.beta != 0.f);
              });
}

}  // namespace phx::kernels::cuda
