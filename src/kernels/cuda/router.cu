// A warp takes a token. Its lane l holds experts l, l + 32, ..: slot i is expert 32 i + l, and
// kSlots slots hold up to 32 kSlots experts. What is added up over tokens is added in a fixed
// order.
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/cuda/stable_sort.h"
#include "phalanx/kernels/router.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

constexpr int kWarps = 4;  // tokens a block
constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;
constexpr int kChoiceSlots = int(kMostTopk) / kWarp;  // lane l also holds choices l and l + 32
constexpr float kSigmoidFloor = 1e-20f;               // Megatron's: a sum of sigmoids is divided by

struct Router {
  int e, k;
  RouterScores scores;
  int groups, group_topk;
  float scaling;
};

Router router_of(int64_t e, const RouterOptions& options) {
  return {.e = narrow<int>(e),
          .k = narrow<int>(options.topk),
          .scores = options.scores,
          .groups = narrow<int>(options.groups),
          .group_topk = narrow<int>(options.group_topk),
          .scaling = float(options.scaling)};
}

__device__ __forceinline__ float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

// Numbers in the order of the floats; 0 is below all of them. Both zeros are one number.
__device__ __forceinline__ uint32_t order_key(float x) {
  const uint32_t bits = __float_as_uint(x + 0.f);
  return max((bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u, 1u);
}
__device__ __forceinline__ float key_value(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

__device__ __forceinline__ int lane_id() { return int(threadIdx.x) % kWarp; }

// Takes the largest of 32 kSlots keys out, again and again: the lower index first where equal.
template <int kSlots>
class Largest {
 public:
  // keys: 0 where there is nothing to take.
  __device__ __forceinline__ explicit Largest(const uint32_t (&keys)[kSlots]) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) keys_[i] = keys[i];
    look();
  }

  struct Taken {
    uint32_t key;
    int index;
  };
  __device__ __forceinline__ Taken take() {
    const uint32_t top = __reduce_max_sync(kAll, key_);
    const int index = int(__reduce_min_sync(kAll, key_ == top ? unsigned(index_) : kNone));
    if (index == index_) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i)
        if (i * kWarp + lane_id() == index) keys_[i] = 0;
      look();
    }
    return {top, index};
  }

 private:
  static constexpr unsigned kNone = 0x7fffffffu;

  __device__ __forceinline__ void look() {
    key_ = 0;
    index_ = lane_id();
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      if (keys_[i] <= key_) continue;
      key_ = keys_[i];
      index_ = i * kWarp + lane_id();
    }
  }

  uint32_t keys_[kSlots];
  uint32_t key_;  // this lane's largest
  int index_;
};

// A token's logits: -inf in slots without an expert.
template <int kSlots>
struct Logits {
  float at[kSlots];

  __device__ __forceinline__ Logits(const float* row, int e) {
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int expert = i * kWarp + lane_id();
      at[i] = expert < e ? row[expert] : -INFINITY;
    }
  }
};

// Scores over all experts, normalised: softmax, or sigmoid over its sum.
template <int kSlots>
struct TokenScores {
  float p[kSlots];
  float top, total, lse;  // of the softmax
  float sum;              // what p was divided by

  __device__ __forceinline__ TokenScores(const Logits<kSlots>& logits, bool sigmoids) {
    top = -INFINITY;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) top = fmaxf(top, logits.at[i]);
    top = warp_max(top);
    total = 0.f;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) total += p[i] = expf(logits.at[i] - top);
    total = warp_sum(total);
    lse = top + logf(total);
    sum = total;
    if (sigmoids) {
      sum = 0.f;
#pragma unroll
      for (int i = 0; i < kSlots; ++i)  // sigmoid(-inf) is 0
        sum += p[i] = sigmoid(logits.at[i]);
      sum = warp_sum(sum);
    }
#pragma unroll
    for (int i = 0; i < kSlots; ++i) p[i] /= sum;
  }
};

// Closes the experts outside of the best groups.
template <int kSlots>
__device__ void close_groups(const Router& router, uint32_t (&keys)[kSlots]) {
  const int size = router.e / router.groups, counted = router.k / router.group_topk;
  uint32_t group_keys[kSlots] = {};  // slot i of lane l is group 32 i + l
  for (int g = 0; g < router.groups; ++g) {
    uint32_t inside[kSlots];
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int expert = i * kWarp + lane_id();
      inside[i] = expert >= g * size && expert < (g + 1) * size ? keys[i] : 0;
    }
    Largest<kSlots> largest(inside);
    float sum = 0.f;  // the best first
    for (int j = 0; j < counted; ++j) sum += key_value(largest.take().key);
#pragma unroll
    for (int i = 0; i < kSlots; ++i)
      if (i * kWarp + lane_id() == g) group_keys[i] = order_key(sum);
  }
  Largest<kSlots> best(group_keys);
  uint32_t open = 0;  // a bit a slot
  for (int j = 0; j < router.group_topk; ++j) {
    const int g = best.take().index;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int expert = i * kWarp + lane_id();
      if (expert >= g * size && expert < (g + 1) * size) open |= 1u << i;
    }
  }
#pragma unroll
  for (int i = 0; i < kSlots; ++i)
    if ((open >> i & 1u) == 0) keys[i] = 0;
}

// A value for each of a token's k choices: choice 32 i + l is in slot i of lane l.
struct Choices {
  int expert[kChoiceSlots];
  float logit[kChoiceSlots];

  // f(slot, choice) for those that this lane has
  template <class F>
  static __device__ __forceinline__ void each(int k, F&& f) {
#pragma unroll
    for (int i = 0; i < kChoiceSlots; ++i) {
      const int j = i * kWarp + lane_id();
      if (j < k) f(i, j);
    }
  }
};

// exp of the logits below the largest chosen one, or sigmoids; and their sum.
struct ChoiceScores {
  float s[kChoiceSlots];
  float sum;

  __device__ __forceinline__ ChoiceScores(const Choices& choices, int k, bool sigmoids) {
    float top = -INFINITY;
    Choices::each(k, [&](int i, int) { top = fmaxf(top, choices.logit[i]); });
    top = warp_max(top);
    sum = 0.f;
    Choices::each(k, [&](int i, int) {
      s[i] = sigmoids ? sigmoid(choices.logit[i]) : expf(choices.logit[i] - top);
      sum += s[i];
    });
    sum = warp_sum(sum);
  }
};

template <int kSlots>
__device__ void weigh(const Router& router, const Logits<kSlots>& logits, const Choices& choices,
                      float* probs) {
  if (router.scores == RouterScores::softmax_before) {
    const TokenScores<kSlots> all(logits, /*sigmoids=*/false);
    Choices::each(router.k, [&](int i, int j) {
      probs[j] = expf(choices.logit[i] - all.top) / all.sum * router.scaling;
    });
    return;
  }
  const bool sigmoids = router.scores == RouterScores::sigmoid;
  const ChoiceScores scores(choices, router.k, sigmoids);
  float factor = router.scaling;
  if (!sigmoids) factor /= scores.sum;
  if (sigmoids && router.k > 1) factor /= scores.sum + kSigmoidFloor;
  Choices::each(router.k, [&](int i, int j) { probs[j] = scores.s[i] * factor; });
}

template <int kSlots>
__global__ void __launch_bounds__(kWarps* kWarp)
    route_kernel(const float* __restrict__ logits, const float* __restrict__ bias, Router router,
                 int* __restrict__ indices, float* __restrict__ probs, int64_t tokens) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= tokens) return;  // whole warps leave together
  const float* row = logits + token * router.e;
  const Logits<kSlots> l(row, router.e);

  uint32_t keys[kSlots];
  float values[kSlots];
  if (router.scores == RouterScores::softmax_before) {
    const TokenScores<kSlots> all(l, /*sigmoids=*/false);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) values[i] = all.p[i];
  } else {
#pragma unroll
    for (int i = 0; i < kSlots; ++i)
      values[i] = router.scores == RouterScores::sigmoid ? sigmoid(l.at[i]) : l.at[i];
  }
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int expert = i * kWarp + lane_id();
    keys[i] = 0;
    if (expert < router.e) keys[i] = order_key(bias ? values[i] + bias[expert] : values[i]);
  }
  if (router.groups > 1) close_groups(router, keys);

  Choices choices;
  Largest<kSlots> largest(keys);
  for (int j = 0; j < router.k; ++j) {
    const int expert = largest.take().index;
#pragma unroll
    for (int i = 0; i < kChoiceSlots; ++i)
      if (i * kWarp + lane_id() == j) choices.expert[i] = expert;
  }
  Choices::each(router.k, [&](int i, int j) {
    choices.logit[i] = row[choices.expert[i]];
    indices[token * router.k + j] = choices.expert[i];
  });
  weigh(router, l, choices, probs + token * router.k);
}

__device__ __forceinline__ Choices given_choices(const float* row, const int* indices, int k) {
  Choices choices;
  Choices::each(k, [&](int i, int j) {
    choices.expert[i] = indices[j];
    choices.logit[i] = row[indices[j]];
  });
  return choices;
}

template <int kSlots>
__global__ void __launch_bounds__(kWarps* kWarp)
    route_given_kernel(const float* __restrict__ logits, const int* __restrict__ indices,
                       Router router, float* __restrict__ probs, int64_t tokens) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= tokens) return;
  const float* row = logits + token * router.e;
  weigh(router, Logits<kSlots>(row, router.e),
        given_choices(row, indices + token * router.k, router.k), probs + token * router.k);
}

// Of the weights: adds to dl.
template <int kSlots>
__device__ void weights_backward(const Router& router, const Logits<kSlots>& logits,
                                 const Choices& choices, const float* dprobs, float (&dl)[kSlots]) {
  float to_chosen[kChoiceSlots] = {};
  if (router.scores == RouterScores::softmax_before) {
    const TokenScores<kSlots> all(logits, /*sigmoids=*/false);
    float dot = 0.f;
    Choices::each(router.k, [&](int i, int j) {
      to_chosen[i] = expf(choices.logit[i] - all.top) / all.sum * router.scaling * dprobs[j];
      dot += to_chosen[i];
    });
    dot = warp_sum(dot);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) dl[i] -= all.p[i] * dot;
  } else {
    const bool sigmoids = router.scores == RouterScores::sigmoid;
    const bool normalised = !sigmoids || router.k > 1;
    const ChoiceScores scores(choices, router.k, sigmoids);
    const float sum = sigmoids ? scores.sum + kSigmoidFloor : scores.sum;
    float dot = 0.f;  // of the gradient with the normalised scores
    if (normalised)
      Choices::each(router.k,
                    [&](int i, int j) { dot += router.scaling * dprobs[j] * scores.s[i] / sum; });
    dot = warp_sum(dot);
    Choices::each(router.k, [&](int i, int j) {
      const float s = scores.s[i], d = router.scaling * dprobs[j];
      to_chosen[i] = (normalised ? (d - dot) / sum : d) * (sigmoids ? s * (1.f - s) : s);
    });
  }
  // From the lanes of the choices to the lanes of the experts.
  for (int j = 0; j < router.k; ++j) {
    const bool second = j >= kWarp;
    const int expert = __shfl_sync(kAll, second ? choices.expert[1] : choices.expert[0], j % kWarp);
    const float d = __shfl_sync(kAll, second ? to_chosen[1] : to_chosen[0], j % kWarp);
#pragma unroll
    for (int i = 0; i < kSlots; ++i)
      if (i * kWarp + lane_id() == expert) dl[i] += d;
  }
}

template <int kSlots>
__global__ void __launch_bounds__(kWarps* kWarp)
    route_backward_kernel(const float* __restrict__ logits, const int* __restrict__ indices,
                          const float* __restrict__ dprobs, const float* __restrict__ slopes,
                          int samples, Router router, float* __restrict__ dlogits, bool keep,
                          int64_t tokens) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= tokens) return;
  const float* row = logits + token * router.e;
  const Logits<kSlots> l(row, router.e);
  float dl[kSlots] = {};
  weights_backward(router, l, given_choices(row, indices + token * router.k, router.k),
                   dprobs + token * router.k, dl);

  if (slopes != nullptr) {  // [samples, e], then that of the z-loss
    const bool sigmoids = router.scores == RouterScores::sigmoid;
    const TokenScores<kSlots> all(l, sigmoids);
    const float* slope = slopes + token % samples * router.e;
    const float z_slope = slopes[int64_t{samples} * router.e];
    float d[kSlots], dot = 0.f;
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const int expert = i * kWarp + lane_id();
      d[i] = expert < router.e ? slope[expert] : 0.f;
      dot += all.p[i] * d[i];
    }
    dot = warp_sum(dot);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const float p = all.p[i];
      // sigmoid: p = s / sum, so ds = d / sum and dl = ds s (1 - s) = d p (1 - p sum)
      dl[i] += (d[i] - dot) * (sigmoids ? p * (1.f - p * all.sum) : p);
      if (z_slope != 0.f) dl[i] += z_slope * all.lse * expf(l.at[i] - all.lse);
    }
  }
#pragma unroll
  for (int i = 0; i < kSlots; ++i) {
    const int expert = i * kWarp + lane_id();
    if (expert >= router.e) continue;
    float* out = dlogits + token * router.e + expert;
    *out = keep ? *out + dl[i] : dl[i];
  }
}

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

__global__ void __launch_bounds__(kThreads)
    route_evenly_kernel(int64_t first, int64_t experts, int* __restrict__ indices, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) indices[i] = int((first + i) % experts);
}

// Sorted by expert and, by weight, with the largest first; choices without an expert at the end.
template <bool kByWeight, class Key>
__global__ void __launch_bounds__(kThreads)
    capacity_keys_kernel(const int* __restrict__ indices, const float* __restrict__ probs,
                         int experts, Key* __restrict__ keys, uint32_t* __restrict__ values,
                         int n) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= n) return;
  const uint32_t expert = indices[i] >= 0 ? uint32_t(indices[i]) : uint32_t(experts);
  if constexpr (kByWeight)
    keys[i] = Key(expert) << 32 | Key(~order_key(probs[i]));
  else
    keys[i] = expert;
  values[i] = uint32_t(i);
}

// The i-th of an expert's choices in the order is kept if the one `capacity` places before it is
// another expert's.
template <int kShift, class Key>
__global__ void __launch_bounds__(kThreads)
    capacity_keep_kernel(const Key* __restrict__ keys, const uint32_t* __restrict__ values,
                         int64_t capacity, int experts, uint8_t* __restrict__ keep, int n) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= n) return;
  const Key expert = keys[i] >> kShift;
  const bool kept = expert < Key(experts) && capacity > 0 &&
                    (i < capacity || keys[i - capacity] >> kShift != expert);
  keep[values[i]] = kept ? 1 : 0;
}

__global__ void __launch_bounds__(kThreads)
    drop_choices_kernel(const uint8_t* __restrict__ keep, int* __restrict__ indices,
                        float* __restrict__ probs, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n || keep[i] != 0) return;
  indices[i] = -1;
  probs[i] = 0.f;
}

// f<kSlots>() for the fewest slots that hold e experts.
template <class F>
void for_slots(int64_t e, F&& f) {
  if (e <= 32)
    f.template operator()<1>();
  else if (e <= 64)
    f.template operator()<2>();
  else if (e <= 128)
    f.template operator()<4>();
  else if (e <= 256)
    f.template operator()<8>();
  else if (e <= 512)
    f.template operator()<16>();
  else
    f.template operator()<32>();
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options, Tensor& indices,
           Tensor& probs) {
  const int64_t t = logits.dim(0), e = logits.dim(1);
  if (t == 0) return;
  for_slots(e, [&]<int kSlots>() {
    route_kernel<kSlots><<<blocks_for(t, kWarps), kWarps * kWarp, 0, stream_of(logits)>>>(
        logits.data<float>(), bias.defined() ? bias.data<float>() : nullptr, router_of(e, options),
        indices.data<int32_t>(), probs.data<float>(), t);
  });
}

void route_given(const Tensor& logits, const Tensor& indices, const RouterOptions& options,
                 Tensor& probs) {
  const int64_t t = logits.dim(0), e = logits.dim(1);
  if (t == 0) return;
  for_slots(e, [&]<int kSlots>() {
    route_given_kernel<kSlots><<<blocks_for(t, kWarps), kWarps * kWarp, 0, stream_of(logits)>>>(
        logits.data<float>(), indices.data<int32_t>(), router_of(e, options), probs.data<float>(),
        t);
  });
}

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

void route_backward(const Tensor& logits, const Tensor& indices, const Tensor& dprobs,
                    const Tensor& slopes, const RouterOptions& options, const Sink& dlogits) {
  const int64_t t = logits.dim(0), e = logits.dim(1);
  if (t == 0) return;
  const int64_t samples = slopes.defined() ? (slopes.numel() - 1) / e : 1;
  for_slots(e, [&]<int kSlots>() {
    route_backward_kernel<kSlots><<<blocks_for(t, kWarps), kWarps * kWarp, 0, stream_of(logits)>>>(
        logits.data<float>(), indices.data<int32_t>(), dprobs.data<float>(),
        slopes.defined() ? slopes.data<float>() : nullptr, narrow<int>(samples),
        router_of(e, options), dlogits.tensor.data<float>(), dlogits.beta != 0.f, t);
  });
}

void route_evenly(int64_t first_token, int64_t experts, Tensor& indices) {
  const int64_t n = indices.numel();
  if (n == 0) return;
  route_evenly_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(indices)>>>(
      first_token * indices.dim(1), experts, indices.data<int32_t>(), n);
  PHX_CUDA_CHECK(cudaGetLastError());
}

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor& workspace, Tensor& keep) {
  const int n = narrow<int>(indices.numel()), e = narrow<int>(experts);
  if (n == 0) return;
  const cudaStream_t stream = stream_of(indices);
  const auto run = [&]<bool kByWeight, class Key>() {
    constexpr int kShift = kByWeight ? 32 : 0;
    const SortArrays<Key> a = sort_arrays<Key>(workspace, n);
    capacity_keys_kernel<kByWeight><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
        indices.data<int32_t>(), probs.data<float>(), e, a.keys, a.values, n);
    PHX_CUDA_CHECK(cudaGetLastError());
    sort_pairs(a, kShift + bits_of(experts), stream);
    capacity_keep_kernel<kShift><<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
        a.sorted_keys, a.sorted_values, capacity, e, keep.data<uint8_t>(), n);
    PHX_CUDA_CHECK(cudaGetLastError());
  };
  if (by_weight)
    run.template operator()<true, uint64_t>();
  else
    run.template operator()<false, uint32_t>();
}

void drop_choices(const Tensor& keep, Tensor& indices, Tensor& probs) {
  const int64_t n = keep.numel();
  if (n == 0) return;
  drop_choices_kernel<<<blocks_for(n, kThreads), kThreads, 0, stream_of(keep)>>>(
      keep.data<uint8_t>(), indices.data<int32_t>(), probs.data<float>(), n);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
