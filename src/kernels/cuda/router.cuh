// What the kernels of the router share. A warp takes a token. Its lane l holds experts l, l + 32,
// ..: slot i is expert 32 i + l, and kSlots slots hold up to 32 kSlots experts.
#pragma once

#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/reduce.cuh"
#include "phalanx/kernels/router.h"

namespace phx::kernels::cuda {

using namespace phx::cuda;

constexpr int kWarps = 4;  // tokens a block
constexpr int kThreads = 256;
constexpr unsigned kAll = 0xffffffffu;

struct Router {
  int e, k;
  RouterScores scores;
  int groups, group_topk, group_best;
  float scaling;
};

inline Router router_of(int64_t e, const RouterOptions& options) {
  return {.e = narrow<int>(e),
          .k = narrow<int>(options.topk),
          .scores = options.scores,
          .groups = narrow<int>(options.groups),
          .group_topk = narrow<int>(options.group_topk),
          .group_best = options.groups > 1 ? narrow<int>(options.counted_in_group()) : 0,
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

}  // namespace phx::kernels::cuda
