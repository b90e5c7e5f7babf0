#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/masters.h"
#include "phalanx/kernels/sgd.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kThreads = 256;

// A thread an element: neighbours read neighbouring words, and memory is the limit.
template <class G, class Master>
__global__ void sgd_kernel(const G* __restrict__ g, const double* __restrict__ slots,
                           SgdOptions options, Master master, float* __restrict__ b, int64_t n) {
  if (slots[int(Slot::skip)] != 0) return;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const SgdStep<float> step(slots, options);
  float p = master.get(i), new_b = b[i];
  step.update(float(g[i]), p, new_b);
  b[i] = new_b;
  master.put(i, p);
}

}  // namespace

void sgd(const Tensor& grad, const Tensor& scalars, const SgdOptions& options,
         const SgdBuffers& buffers) {
  const int64_t n = grad.numel();
  auto stream = static_cast<cudaStream_t>(grad.device().compute_stream());
  with_master(buffers.weight, buffers.master, [&](const auto master) {
    if constexpr (std::is_same_v<std::remove_const_t<decltype(master)>, OwnMaster<double>>) {
      throw_error("sgd on CUDA computes in f32, not f64");
    } else {
      for_gpu_dtype(grad.dtype(), [&]<class G>() {
        sgd_kernel<<<unsigned(ceil_div(n, int64_t{kThreads})), kThreads, 0, stream>>>(
            grad.data<G>(), scalars.data<double>(), options, master, buffers.momentum.data<float>(),
            n);
      });
    }
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
