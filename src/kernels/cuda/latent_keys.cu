#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/latent_keys.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kThreads = 256;

struct Geometry {
  int n, plain, turned, value, key;
};

Geometry geometry(const LatentHeads& heads) {
  return {.n = int(heads.n),
          .plain = int(heads.plain),
          .turned = int(heads.turned),
          .value = int(heads.value),
          .key = int(heads.key())};
}

// A block a token; its threads take the columns of kv in turn.
template <class T>
__global__ void latent_keys_kernel(const T* __restrict__ up, const T* __restrict__ shared,
                                   Geometry at, T* __restrict__ kv) {
  const int both = at.plain + at.value, keys = at.n * at.key, width = keys + at.n * at.value;
  up += int64_t{blockIdx.x} * at.n * both;
  shared += int64_t{blockIdx.x} * at.turned;
  kv += int64_t{blockIdx.x} * width;
  for (int c = threadIdx.x; c < width; c += kThreads) {
    if (c < keys) {
      const int head = c / at.key, i = c % at.key;
      kv[c] = i < at.plain ? up[head * both + i] : shared[i - at.plain];
    } else {
      const int head = (c - keys) / at.value, i = (c - keys) % at.value;
      kv[c] = up[head * both + at.plain + i];
    }
  }
}

// The same with the columns of dup; then a thread a shared channel adds up its heads in order.
template <class T>
__global__ void latent_keys_backward_kernel(const T* __restrict__ dkv, Geometry at,
                                            T* __restrict__ dup, T* __restrict__ dshared) {
  const int both = at.plain + at.value, keys = at.n * at.key;
  dkv += int64_t{blockIdx.x} * (keys + at.n * at.value);
  dup += int64_t{blockIdx.x} * at.n * both;
  dshared += int64_t{blockIdx.x} * at.turned;
  for (int c = threadIdx.x; c < at.n * both; c += kThreads) {
    const int head = c / both, i = c % both;
    dup[c] = i < at.plain ? dkv[head * at.key + i] : dkv[keys + head * at.value + i - at.plain];
  }
  for (int i = threadIdx.x; i < at.turned; i += kThreads) {
    float sum = 0.f;
    for (int head = 0; head < at.n; ++head) sum += float(dkv[head * at.key + at.plain + i]);
    dshared[i] = T(sum);
  }
}

}  // namespace

void latent_keys(const Tensor& up, const Tensor& shared, const LatentHeads& heads, Tensor& kv) {
  auto stream = static_cast<cudaStream_t>(up.device().compute_stream());
  const auto rows = unsigned(kv.numel() / heads.kv_width());
  for_gpu_dtype(up.dtype(), [&]<class T>() {
    latent_keys_kernel<T><<<rows, kThreads, 0, stream>>>(up.data<T>(), shared.data<T>(),
                                                         geometry(heads), kv.data<T>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

void latent_keys_backward(const Tensor& dkv, const LatentHeads& heads, Tensor& dup,
                          Tensor& dshared) {
  auto stream = static_cast<cudaStream_t>(dkv.device().compute_stream());
  const auto rows = unsigned(dkv.numel() / heads.kv_width());
  for_gpu_dtype(dkv.dtype(), [&]<class T>() {
    latent_keys_backward_kernel<T><<<rows, kThreads, 0, stream>>>(dkv.data<T>(), geometry(heads),
                                                                  dup.data<T>(), dshared.data<T>());
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
