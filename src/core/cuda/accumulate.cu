#include "phalanx/core/accumulate.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"

namespace phx::cuda {

namespace {

constexpr int kThreads = 256;

// One thread a vector of kWide elements; n is rounded up and the last vector handled one by one.
template <class X, class Y, int kWide>
__global__ void add_kernel(const X* __restrict__ x, Y* __restrict__ y, int64_t n, bool keep) {
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kWide;
  if (i + kWide <= n) {
    Pack<X, kWide> in = load<kWide>(x + i);
    Pack<Y, kWide> out;
    if (keep) out = load<kWide>(y + i);
#pragma unroll
    for (int j = 0; j < kWide; ++j) out[j] = Y(keep ? float(out[j]) + float(in[j]) : float(in[j]));
    store(y + i, out);
  } else {
    for (int64_t j = i; j < n; ++j) y[j] = Y(keep ? float(y[j]) + float(x[j]) : float(x[j]));
  }
}

}  // namespace

void add_to_sink(const Tensor& x, const Sink& sink) {
  const int64_t n = x.numel();
  if (n == 0) return;
  constexpr int kWide = 4;
  const auto blocks = unsigned((n + kThreads * kWide - 1) / (kThreads * kWide));
  auto stream = static_cast<cudaStream_t>(x.device().compute_stream());
  for_gpu_dtype(x.dtype(), [&]<class X>() {
    for_gpu_dtype(sink.tensor.dtype(), [&]<class Y>() {
      add_kernel<X, Y, kWide><<<blocks, kThreads, 0, stream>>>(x.data<X>(), sink.tensor.data<Y>(),
                                                               n, sink.beta != 0.f);
    });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::cuda
