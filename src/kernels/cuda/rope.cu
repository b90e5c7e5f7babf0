#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/rope.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kThreads = 128;

struct RopeArgs {
  const float* table;        // [positions, 2, pairs]
  const int32_t* positions;  // [rows] or null
  int64_t offset, width;
  int b, pairs;
  int first, n, d, stride, first_channel, heads;  // heads = groups * n
  float sign;
};

// Block r turns row r; its threads go over (head, kWide pairs) of that row. With halves the two
// ends of kWide pairs are two vectors; interleaved, they are 2 kWide neighbouring elements.
template <class T, int kWide, bool kInterleaved>
__global__ void __launch_bounds__(kThreads) rope_kernel(T* __restrict__ x, RopeArgs a) {
  const int64_t row = blockIdx.x;
  const int64_t position = a.positions ? a.positions[row] : a.offset + row / a.b;
  const float* cosines = a.table + position * 2 * a.pairs;
  const int per_head = a.pairs / kWide;
  for (int i = int(threadIdx.x); i < a.heads * per_head; i += kThreads) {
    const int index = i / per_head, pair = (i - index * per_head) * kWide;
    const int head = a.first + index / a.n * a.stride + index % a.n;
    T* channels = x + row * a.width + head * a.d + a.first_channel;
    const Pack<float, kWide> cosine = load<kWide>(cosines + pair);
    const Pack<float, kWide> sine = load<kWide>(cosines + a.pairs + pair);
    if constexpr (!kInterleaved) {
      Pack<T, kWide> low = load<kWide>(channels + pair);
      Pack<T, kWide> high = load<kWide>(channels + a.pairs + pair);
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const float p = float(low[j]), q = float(high[j]), s = a.sign * sine[j];
        low[j] = T(p * cosine[j] - q * s);
        high[j] = T(q * cosine[j] + p * s);
      }
      store(channels + pair, low);
      store(channels + a.pairs + pair, high);
    } else {
      T* both = channels + 2 * pair;
      Pack<T, 2 * kWide> values;
      if constexpr (kWide == 1) {  // single elements need no alignment
        values[0] = both[0];
        values[1] = both[1];
      } else {
        values = load<2 * kWide>(both);
      }
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        const float p = float(values[2 * j]), q = float(values[2 * j + 1]), s = a.sign * sine[j];
        values[2 * j] = T(p * cosine[j] - q * s);
        values[2 * j + 1] = T(q * cosine[j] + p * s);
      }
      if constexpr (kWide == 1) {
        both[0] = values[0];
        both[1] = values[1];
      } else {
        store(both, values);
      }
    }
  }
}

}  // namespace

void rope(Tensor& x, const Tensor& table, const RopeHeads& heads, RopePairs pairs,
          const RopePositions& at, RopeDirection direction) {
  const int64_t width = x.dim(-1), rows = x.numel() / width, count = table.dim(2);
  if (rows == 0) return;
  const RopeArgs args{.table = table.data<float>(),
                      .positions = at.positions.defined() ? at.positions.data<int32_t>() : nullptr,
                      .offset = at.offset,
                      .width = width,
                      .b = narrow<int>(x.rank() == 3 ? x.dim(1) : 1),
                      .pairs = narrow<int>(count),
                      .first = narrow<int>(heads.first),
                      .n = narrow<int>(heads.n),
                      .d = narrow<int>(heads.d),
                      .stride = narrow<int>(heads.stride),
                      .first_channel = narrow<int>(heads.first_channel),
                      .heads = narrow<int>(heads.groups * heads.n),
                      .sign = direction == RopeDirection::forward ? 1.f : -1.f};
  for_gpu_dtype(x.dtype(), [&]<class T>() {
    // Every vector begins at a multiple of 16 bytes if all these do.
    constexpr int kElements = kVector<T>;
    const bool interleaved = pairs == RopePairs::interleaved;
    const int per_access = interleaved ? kElements / 2 : kElements;  // pairs
    const bool vectors = vectorizable(width, x) && vectorizable(2 * count, table) &&
                         count % 4 == 0 && count % per_access == 0 && heads.d % kElements == 0 &&
                         heads.first_channel % kElements == 0;
    auto launch = [&]<int kWide, bool kInterleaved>() {
      rope_kernel<T, kWide, kInterleaved>
          <<<blocks_for(rows, 1), kThreads, 0, stream_of(x)>>>(x.data<T>(), args);
    };
    if (interleaved)
      vectors ? launch.template operator()<kElements / 2, true>()
              : launch.template operator()<1, true>();
    else
      vectors ? launch.template operator()<kElements, false>()
              : launch.template operator()<1, false>();
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
