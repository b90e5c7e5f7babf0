// How evenly tokens are spread over experts: counts, losses and their slopes. What is added up over
// tokens is added in a fixed order.
#include "phalanx/kernels/cuda/router.cuh"

namespace phx::kernels::cuda {

namespace {

// Block (c, sample) adds up the c-th of gridDim.x chunks of a sample's tokens: its warps take
// tokens in turn, and then add their sums one warp after the other. parts [samples, chunks,
// 2 e + 1]: counts, scores and squares of logsumexp.
constexpr int kBalanceWarps = 8;

template <int kSlots>
__global__ void __launch_bounds__(kBalanceWarps* kWarp)
    route_balance_kernel(const float* __restrict__ logits, Router router, int64_t per_sample,
                         float* __restrict__ parts) {
  const int samples = int(gridDim.y), sample = int(blockIdx.y), warp = int(threadIdx.x) / kWarp;
  const int64_t begin = per_sample * blockIdx.x / gridDim.x,
                end = per_sample * (blockIdx.x + 1) / gridDim.x;
  float scores[kSlots] = {}, z = 0.f;
  int counts[kSlots] = {};
  for (int64_t s = begin + warp; s < end; s += kBalanceWarps) {
    const Logits<kSlots> l(logits + (s * samples + sample) * router.e, router.e);
    const TokenScores<kSlots> all(l, router.scores == RouterScores::sigmoid);
    uint32_t keys[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      keys[i] = i * kWarp + lane_id() < router.e ? order_key(all.p[i]) : 0;
      scores[i] += all.p[i];
    }
    z += all.lse * all.lse;
    Largest<kSlots> largest(keys);
    for (int j = 0; j < router.k; ++j) {
      const int expert = largest.take().index;
#pragma unroll
      for (int i = 0; i < kSlots; ++i)
        if (i * kWarp + lane_id() == expert) ++counts[i];
    }
  }
  __shared__ float shared[2 * kSlots * kWarp + 1];
  float *shared_counts = shared, *shared_scores = shared + router.e,
        *shared_z = shared + 2 * router.e;
  for (int turn = 0; turn < kBalanceWarps; ++turn) {
    if (turn == warp) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) {
        const int expert = i * kWarp + lane_id();
        if (expert >= router.e) continue;
        shared_counts[expert] = float(counts[i]) + (turn > 0 ? shared_counts[expert] : 0.f);
        shared_scores[expert] = scores[i] + (turn > 0 ? shared_scores[expert] : 0.f);
      }
      if (lane_id() == 0) *shared_z = z + (turn > 0 ? *shared_z : 0.f);
    }
    __syncthreads();
  }
  const int size = 2 * router.e + 1;
  float* out = parts + (int64_t{sample} * gridDim.x + blockIdx.x) * size;
  for (int i = int(threadIdx.x); i < size; i += kBalanceWarps * kWarp) out[i] = shared[i];
}

// A warp a sum: counts [samples, e], scores [samples, e], z.
__global__ void __launch_bounds__(kThreads)
    balance_sum_kernel(const float* __restrict__ parts, int samples, int chunks, int e,
                       float* __restrict__ sums) {
  const int at = (int(blockIdx.x) * kThreads + int(threadIdx.x)) / kWarp;
  const int cells = samples * e, size = 2 * e + 1;
  if (at > 2 * cells) return;  // whole warps
  const bool is_z = at == 2 * cells;
  const int cell = at % cells, column = is_z ? 2 * e : at / cells * e + cell % e;
  const int first = is_z ? 0 : cell / e * chunks, last = is_z ? samples * chunks : first + chunks;
  float sum = 0.f;
  for (int i = first + lane_id(); i < last; i += kWarp) sum += parts[int64_t{i} * size + column];
  sum = warp_sum(sum);
  if (lane_id() == 0) sums[at] = sum;
}

// One block; a thread an expert.
constexpr int kSlopeThreads = int(kMostExperts);

__global__ void __launch_bounds__(kSlopeThreads)
    balance_slopes_kernel(const float* __restrict__ sums, int samples, int e,
                          BalanceFactors factors, const float* __restrict__ scale,
                          const float* __restrict__ loads, float* __restrict__ slopes,
                          double* __restrict__ costs) {
  const int cells = samples * e, j = int(threadIdx.x);
  const float *counts = sums, *scores = sums + cells;
  double n = 0, p = 0, cost[3] = {};  // of the batch, the samples and by past loads
  if (j < e) {
    for (int s = 0; s < samples; ++s) {
      const double count = counts[s * e + j], score = scores[s * e + j];
      n += count;
      p += score;
      cost[1] += factors.sample * count * score;
    }
    const double past = loads ? factors.past * double(loads[j]) : 0.0;
    cost[0] = factors.batch * n * p;
    cost[2] = past * p;
    for (int s = 0; s < samples; ++s)
      slopes[s * e + j] =
          scale[0] * float(factors.batch * n + factors.sample * double(counts[s * e + j]) + past);
  }
  __shared__ double shared[3][kSlopeThreads];
  for (int c = 0; c < 3; ++c) shared[c][j] = cost[c];
  __syncthreads();
  for (int step = kSlopeThreads / 2; step > 0; step /= 2) {
    if (j < step)
      for (int c = 0; c < 3; ++c) shared[c][j] += shared[c][j + step];
    __syncthreads();
  }
  if (j != 0) return;
  for (int c = 0; c < 3; ++c) costs[c] += shared[c][0];
  costs[3] += factors.z * double(sums[2 * cells]);
  slopes[cells] = scale[0] * float(2 * factors.z);
}

}  // namespace

void route_balance(const Tensor& logits, const RouterOptions& options, int64_t samples,
                   Tensor& workspace, Tensor& sums) {
  const int64_t per_sample = logits.dim(0) / samples, e = logits.dim(1);
  if (per_sample == 0) return set_zero(sums);
  const int64_t chunks = balance_chunks(logits.dim(0), samples);
  for_slots(e, [&]<int kSlots>() {
    const dim3 grid(blocks_for(chunks, 1), blocks_for(samples, 1));
    route_balance_kernel<kSlots><<<grid, kBalanceWarps * kWarp, 0, stream_of(logits)>>>(
        logits.data<float>(), router_of(e, options), per_sample, workspace.data<float>());
  });
  balance_sum_kernel<<<blocks_for(sums.numel(), kThreads / kWarp), kThreads, 0,
                       stream_of(logits)>>>(workspace.data<float>(), narrow<int>(samples),
                                            narrow<int>(chunks), narrow<int>(e),
                                            sums.data<float>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

void balance_slopes(const Tensor& sums, int64_t experts, const BalanceFactors& factors,
                    const Tensor& scale, const Tensor& loads, Tensor& slopes, Tensor& costs) {
  balance_slopes_kernel<<<1, kSlopeThreads, 0, stream_of(sums)>>>(
      sums.data<float>(), narrow<int>((slopes.numel() - 1) / experts), narrow<int>(experts),
      factors, scale.data<float>(), loads.defined() ? loads.data<float>() : nullptr,
      slopes.data<float>(), costs.data<double>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
