// Which experts tokens go to and with which weights, and the backward of both.
#include "phalanx/kernels/cuda/router.cuh"

namespace phx::kernels::cuda {

namespace {

constexpr int kChoiceSlots = int(kMostTopk) / kWarp;  // lane l also holds choices l and l + 32
constexpr float kSigmoidFloor = 1e-20f;               // Megatron's: a sum of sigmoids is divided by

// Closes the experts outside of the best groups.
template <int kSlots>
__device__ void close_groups(const Router& router, uint32_t (&keys)[kSlots]) {
  const int size = router.e / router.groups;
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
    for (int j = 0; j < router.group_best; ++j) sum += key_value(largest.take().key);
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

__global__ void __launch_bounds__(kThreads)
    route_evenly_kernel(int64_t first, int64_t experts, int* __restrict__ indices, int64_t count) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) indices[i] = int((first + i) % experts);
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

}  // namespace phx::kernels::cuda
