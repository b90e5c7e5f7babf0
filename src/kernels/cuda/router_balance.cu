// How evenly tokens are spread over experts: counts, losses and their slopes. What is added up over
// tokens is added in a fixed order.
#include "phalanx/kernels/cuda/router.cuh"

namespace phx::kernels::cuda {

namespace {

// Block (c, sample) adds up the c-th of gridDim.x chunks of a sample's tokens: its warps take
// tokens in turn, and then add their sums one warp after the other. parts [samples, chunks,
// 2 e + 2]: counts, scores, squares of logsumexp and entropies.
constexpr int kBalanceWarps = 8;

template <int kSlots>
__global__ void __launch_bounds__(kBalanceWarps* kWarp)
    route_balance_kernel(const float* __restrict__ logits, Router router, int64_t per_sample,
                         float* __restrict__ parts) {
  const int samples = int(gridDim.y), sample = int(blockIdx.y), warp = int(threadIdx.x) / kWarp;
  const int64_t begin = per_sample * blockIdx.x / gridDim.x,
                end = per_sample * (blockIdx.x + 1) / gridDim.x;
  float scores[kSlots] = {}, z = 0.f, entropy = 0.f;  // the latter this lane's part
  int counts[kSlots] = {};
  for (int64_t s = begin + warp; s < end; s += kBalanceWarps) {
    const Logits<kSlots> l(logits + (s * samples + sample) * router.e, router.e);
    const TokenScores<kSlots> all(l, router.scores == RouterScores::sigmoid);
    uint32_t keys[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      keys[i] = i * kWarp + lane_id() < router.e ? order_key(all.p[i]) : 0;
      scores[i] += all.p[i];
      if (all.p[i] > 0.f) entropy -= all.p[i] * logf(all.p[i]);
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
  entropy = warp_sum(entropy);
  __shared__ float shared[2 * kSlots * kWarp + 2];
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
      if (lane_id() == 0) {
        shared_z[0] = z + (turn > 0 ? shared_z[0] : 0.f);
        shared_z[1] = entropy + (turn > 0 ? shared_z[1] : 0.f);
      }
    }
    __syncthreads();
  }
  const int size = 2 * router.e + 2;
  float* out = parts + (int64_t{sample} * gridDim.x + blockIdx.x) * size;
  for (int i = int(threadIdx.x); i < size; i += kBalanceWarps * kWarp) out[i] = shared[i];
}

// A warp a sum: counts [samples, e], scores [samples, e], z, entropy.
__global__ void __launch_bounds__(kThreads)
    balance_sum_kernel(const float* __restrict__ parts, int samples, int chunks, int e,
                       float* __restrict__ sums) {
  const int at = (int(blockIdx.x) * kThreads + int(threadIdx.x)) / kWarp;
  const int cells = samples * e, size = 2 * e + 2;
  if (at > 2 * cells + 1) return;       // whole warps
  const bool of_all = at >= 2 * cells;  // z and entropy: of all samples
  const int cell = at % cells, column = of_all ? 2 * (e - cells) + at : at / cells * e + cell % e;
  const int first = of_all ? 0 : cell / e * chunks;
  const int last = of_all ? samples * chunks : first + chunks;
  float sum = 0.f;
  for (int i = first + lane_id(); i < last; i += kWarp) sum += parts[int64_t{i} * size + column];
  sum = warp_sum(sum);
  if (lane_id() == 0) sums[at] = sum;
}

// One block; a thread an expert.
constexpr int kSlopeThreads = int(kMostExperts);

// The sum of a value of every thread of a block of kSlopeThreads.
__device__ double sum_of_threads(double value) {
  __shared__ double shared[kSlopeThreads];
  const int j = int(threadIdx.x);
  __syncthreads();  // the last sum has been read
  shared[j] = value;
  __syncthreads();
  for (int step = kSlopeThreads / 2; step > 0; step /= 2) {
    if (j < step) shared[j] += shared[j + step];
    __syncthreads();
  }
  return shared[0];
}

__global__ void __launch_bounds__(kSlopeThreads)
    balance_slopes_kernel(const float* __restrict__ sums, int samples, int e,
                          BalanceFactors factors, const float* __restrict__ scale,
                          const float* __restrict__ loads, float* __restrict__ slopes,
                          double* __restrict__ tally) {
  const int cells = samples * e, j = int(threadIdx.x);
  const float *counts = sums, *scores = sums + cells;
  double n = 0, p = 0, cost[3] = {};  // of the batch, the samples and by past loads
  if (j < e)
    for (int s = 0; s < samples; ++s) {
      const double count = counts[s * e + j], score = scores[s * e + j];
      n += count;
      p += score;
      cost[1] += factors.sample * count * score;
    }
  // Shares of past loads; of this micro-batch's where there are none.
  const double load = loads != nullptr && j < e ? double(loads[j]) : 0.0;
  const double all_loads = sum_of_threads(load), all_counts = sum_of_threads(n);
  const double share = all_loads > 0 ? load / all_loads : n / all_counts;
  cost[0] = factors.batch * n * p;
  cost[2] = factors.past * share * p;
  if (j < e) {
    for (int s = 0; s < samples; ++s)
      slopes[s * e + j] =
          scale[0] * float(factors.batch * n + factors.sample * double(counts[s * e + j]) +
                           factors.past * share);
    if (tally != nullptr) tally[j] += factors.count * n;
  }
  for (int c = 0; c < 3; ++c) cost[c] = sum_of_threads(cost[c]);
  if (j != 0) return;
  slopes[cells] = scale[0] * float(2 * factors.z);
  if (tally == nullptr) return;
  for (int c = 0; c < 3; ++c) tally[e + c] += cost[c];
  tally[e + 3] += factors.z * double(sums[2 * cells]);
  tally[e + 4] += factors.entropy * double(sums[2 * cells + 1]);
}

// Whole numbers: whatever the order, their sums are exact.
__global__ void __launch_bounds__(kThreads)
    count_choices_kernel(const int* __restrict__ indices, int64_t n, int64_t tokens, int e,
                         double* __restrict__ tally) {
  __shared__ int counts[kMostExperts + 1];  // the last one: dropped
  for (int i = int(threadIdx.x); i <= e; i += kThreads) counts[i] = 0;
  __syncthreads();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads)
    atomicAdd(&counts[indices[i] >= 0 ? indices[i] : e], 1);
  __syncthreads();
  for (int i = int(threadIdx.x); i <= e; i += kThreads)
    if (counts[i] != 0) atomicAdd(&tally[i], double(counts[i]));
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  tally[e + 1] += double(tokens);
  tally[e + 2] += 1.0;
}

__global__ void __launch_bounds__(kSlopeThreads)
    end_router_step_kernel(const double* __restrict__ chosen, const double* __restrict__ scored,
                           const double* __restrict__ skip, double rate, int e,
                           float* __restrict__ bias, float* __restrict__ loads) {
  const int j = int(threadIdx.x);
  const double mean = sum_of_threads(j < e ? chosen[j] : 0.0) / e;
  if (j >= e || skip[0] != 0.0) return;
  if (bias != nullptr) {
    const double lack = mean - chosen[j];
    bias[j] += float(lack > 0 ? rate : lack < 0 ? -rate : 0.0);
  }
  if (loads != nullptr) loads[j] = float(scored[j]);
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
                    const Tensor& scale, const Tensor& loads, Tensor& slopes, const Tensor& tally) {
  balance_slopes_kernel<<<1, kSlopeThreads, 0, stream_of(sums)>>>(
      sums.data<float>(), narrow<int>((slopes.numel() - 1) / experts), narrow<int>(experts),
      factors, scale.data<float>(), loads.defined() ? loads.data<float>() : nullptr,
      slopes.data<float>(), tally.defined() ? tally.data<double>() : nullptr);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void count_choices(const Tensor& indices, int64_t experts, const Tensor& tally) {
  const int64_t n = indices.numel();
  constexpr int64_t kMostBlocks = 64;
  const auto blocks = unsigned(std::clamp<int64_t>(ceil_div(n, 4 * kThreads), 1, kMostBlocks));
  count_choices_kernel<<<blocks, kThreads, 0, stream_of(indices)>>>(
      indices.data<int32_t>(), n, indices.dim(0), narrow<int>(experts), tally.data<double>());
  PHX_CUDA_CHECK(cudaGetLastError());
}

void end_router_step(const RouterTally& tally, const Tensor& skip, double rate, Tensor& bias,
                     Tensor& loads) {
  end_router_step_kernel<<<1, kSlopeThreads, 0, stream_of(skip)>>>(
      tally.chosen().data<double>(), tally.scored().data<double>(), skip.data<double>(), rate,
      narrow<int>(tally.experts), bias.defined() ? bias.data<float>() : nullptr,
      loads.defined() ? loads.data<float>() : nullptr);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
