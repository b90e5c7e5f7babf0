// How many rows there are is read from offsets[e] on the device: grids cover the room for rows, and
// what lies behind the last row leaves at once.
#include "phalanx/kernels/activation_math.h"
#include "phalanx/kernels/cuda/for_width.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 256;

struct CudaMath {
  static __device__ __forceinline__ float exp(float x) { return expf(x); }
  static __device__ __forceinline__ float erf(float x) { return erff(x); }
  static __device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }
};

// A warp a row, each lane kWide channels at a time.
constexpr int kRowsABlock = kThreads / kWarp;

template <class T, Activation kKind, bool kGated, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_weighted_kernel(const T* __restrict__ x, const float* __restrict__ probs,
                             const int* __restrict__ used, T* __restrict__ y, int f) {
  const int64_t row = int64_t{blockIdx.x} * kRowsABlock + threadIdx.x / kWarp;
  if (row >= *used) return;
  const T* gate = x + row * f * (kGated ? 2 : 1);
  const float p = probs[row];
#pragma unroll 2
  for (int c = int(threadIdx.x) % kWarp * kWide; c < f; c += kWarp * kWide) {
    const Pack<T, kWide> g = load<kWide>(gate + c);
    Pack<T, kWide> u, out;
    if constexpr (kGated) u = load<kWide>(gate + f + c);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      float value = activation_at<kKind, CudaMath>(float(g[j])).value;
      if constexpr (kGated) value *= float(u[j]);
      out[j] = T(p * value);
    }
    store(y + row * f + c, out);
  }
}

template <class T, Activation kKind, bool kGated, int kWide>
__global__ void __launch_bounds__(kThreads)
    activate_weighted_backward_kernel(const T* __restrict__ x, const float* __restrict__ probs,
                                      const int* __restrict__ used, const T* __restrict__ dy,
                                      T* __restrict__ dx, float* __restrict__ dprobs, int f,
                                      int64_t room) {
  const int64_t row = int64_t{blockIdx.x} * kRowsABlock + threadIdx.x / kWarp;
  if (row >= room) return;  // whole warps leave together
  const int lane = int(threadIdx.x) % kWarp;
  if (row >= *used) {
    if (lane == 0) dprobs[row] = 0.f;
    return;
  }
  const int64_t at = row * f * (kGated ? 2 : 1);
  const float p = probs[row];
  float dp = 0.f;
#pragma unroll 2
  for (int c = lane * kWide; c < f; c += kWarp * kWide) {
    const Pack<T, kWide> g = load<kWide>(x + at + c), d = load<kWide>(dy + row * f + c);
    Pack<T, kWide> u, dgate, dup;
    if constexpr (kGated) u = load<kWide>(x + at + f + c);
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      const auto act = activation_at<kKind, CudaMath>(float(g[j]));
      float factor = 1.f;
      if constexpr (kGated) factor = float(u[j]);
      dp += float(d[j]) * act.value * factor;
      dgate[j] = T(p * float(d[j]) * factor * act.slope);
      if constexpr (kGated) dup[j] = T(p * float(d[j]) * act.value);
    }
    store(dx + at + c, dgate);
    if constexpr (kGated) store(dx + at + f + c, dup);
  }
  dp = warp_sum(dp);
  if (lane == 0) dprobs[row] = dp;
}

// f<T, kind, gated, kWide>()
template <class F>
void for_activations(DType dtype, const ExpertActivation& activation, bool vectors, F&& f) {
  for_width(dtype, vectors, [&]<class T, int kWide>() {
    for_activation(activation.kind, [&]<Activation kKind>() {
      if (activation.gated)
        f.template operator()<T, kKind, true, kWide>();
      else
        f.template operator()<T, kKind, false, kWide>();
    });
  });
}

const int* rows_used(const Tensor& offsets) {
  return offsets.data<int32_t>() + (offsets.numel() - 1);
}

}  // namespace

void activate_weighted(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                       const ExpertActivation& activation, Tensor& y) {
  if (y.numel() == 0) return;
  const int64_t f = y.dim(-1), room = y.numel() / f;
  for_activations(x.dtype(), activation, vectorizable(f, x, y),
                  [&]<class T, Activation kKind, bool kGated, int kWide>() {
                    activate_weighted_kernel<T, kKind, kGated, kWide>
                        <<<blocks_for(room, kRowsABlock), kThreads, 0, stream_of(x)>>>(
                            x.data<T>(), probs.data<float>(), rows_used(offsets), y.data<T>(),
                            narrow<int>(f));
                  });
}

void activate_weighted_backward(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                                const Tensor& dy, const ExpertActivation& activation, Tensor& dx,
                                Tensor& dprobs) {
  if (dy.numel() == 0) return;
  const int64_t f = dy.dim(-1), room = dy.numel() / f;
  for_activations(x.dtype(), activation, vectorizable(f, x, dy, dx),
                  [&]<class T, Activation kKind, bool kGated, int kWide>() {
                    activate_weighted_backward_kernel<T, kKind, kGated, kWide>
                        <<<blocks_for(room, kRowsABlock), kThreads, 0, stream_of(x)>>>(
                            x.data<T>(), probs.data<float>(), rows_used(offsets), dy.data<T>(),
                            dx.data<T>(), dprobs.data<float>(), narrow<int>(f), room);
                  });
}

}  // namespace phx::kernels::cuda
