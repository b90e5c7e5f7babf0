#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/paced_copy.h"

namespace phx::kernels::cuda {

namespace {

// NCCL takes 16 to 32 blocks for a large collective on one machine. A copy that is given no time is
// to take none, and has the whole device.
constexpr int kBlocks = 16, kBlocksOfNoTime = 1024, kThreads = 512;
// A block copies its share in so many parts, each at its time.
constexpr int kParts = 32;

__device__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

template <class Word>
__global__ void __launch_bounds__(kThreads)
    paced_copy_kernel(const Word* from, int64_t n_from, Word* to, int64_t n, uint64_t duration) {
  const uint64_t start = nanoseconds();
  const int64_t share = (n + gridDim.x - 1) / gridDim.x;
  const int64_t begin = blockIdx.x * share, end = min(n, begin + share);
  const int64_t step = (share + kParts - 1) / kParts;
  for (int part = 0; part < kParts; ++part) {
    const int64_t first = begin + part * step, last = min(end, first + step);
    for (int64_t i = first + threadIdx.x; i < last; i += kThreads) to[i] = from[i % n_from];
    while (nanoseconds() - start < duration / kParts * (part + 1)) __nanosleep(500);
  }
}

template <class Word>
void launch(const Tensor& from, const Tensor& to, uint64_t duration, cudaStream_t stream) {
  const int blocks = duration > 0 ? kBlocks : kBlocksOfNoTime;
  paced_copy_kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<const Word*>(from.raw()), from.bytes() / int64_t(sizeof(Word)),
      static_cast<Word*>(to.raw()), to.bytes() / int64_t(sizeof(Word)), duration);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void paced_copy(const Tensor& from, const Tensor& to, double seconds, Stream stream) {
  const auto lane = static_cast<cudaStream_t>(stream.native());
  const auto duration = uint64_t(seconds * 1e9);
  const auto whole = [](const Tensor& x) {
    return x.bytes() % 16 == 0 && reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0;
  };
  if (whole(from) && whole(to))
    launch<uint4>(from, to, duration, lane);
  else
    launch<uint8_t>(from, to, duration, lane);
}

}  // namespace phx::kernels::cuda
