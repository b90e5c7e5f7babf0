// Loss and gradient of a row that reads memory once: both passes need the row, so the packs that
// were read last stay in registers, and the others are walked backwards, so that the most recent
// ones are still in the L2 cache.
#pragma once

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/cross_entropy_row.cuh"

namespace phx::kernels::cuda::entropy {

using phx::cuda::Packed;

inline constexpr int kHeld = 8;   // packs a thread keeps
inline constexpr int kBatch = 4;  // packs on their way at once
inline constexpr float kLog2e = 1.4426950408889634f;

// 2^x, one instruction.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Loss and gradient of one row without a softcap. An element costs a handful of instructions in
// each pass, so that memory is what takes time: exponents are one multiply-add (in base 2, and in
// the gradient with the row's weight in them), and what is special about the label is put right
// afterwards by one thread. Columns past the classes come after the whole packs.
template <class T>
__device__ void held_row(T* z, const Rows& rows, const Label& label, float weight,
                         float* loss_out) {
  using Values = Packed<T>;
  constexpr int kWide = Values::kWide;
  const int thread = int(threadIdx.x), packs = int(rows.classes / kWide);
  const int first_rest = packs * kWide;  // fewer than kWide classes, then padding
  const float target = label.column >= 0 ? float(z[label.column]) : 0.f;

  // The sum of 2^(z log2e - base), where base is the largest exponent so far.
  Partial mine{-INFINITY, 0.f};
  const auto add = [&]<int kN>(Values(&in)[kN], const bool(&there)[kN]) {
    float largest = -INFINITY;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!there[j]) continue;
      float values[kWide];
      in[j].open(values);
#pragma unroll
      for (int i = 0; i < kWide; ++i) largest = fmaxf(largest, values[i]);
      in[j].forget_opened();
    }
    largest = fmaxf(mine.largest, largest * kLog2e);
    const float base = largest == -INFINITY ? 0.f : largest;  // -inf - -inf would be nan
    float sum = mine.sum * exp2_fast(mine.largest - base);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      if (!there[j]) continue;
      float values[kWide];
      in[j].open(values);
#pragma unroll
      for (int i = 0; i < kWide; ++i) sum += exp2_fast(fmaf(values[i], kLog2e, -base));
      in[j].forget_opened();
    }
    mine = {largest, sum};
  };

  // First what is not kept: packs from kHeld * kThreads on, in rounds of kBatch * kThreads.
  constexpr int kFirst = kHeld * kThreads, kRound = kBatch * kThreads;
  const int rounds = packs > kFirst ? (packs - kFirst + kRound - 1) / kRound : 0;
  const auto load_round = [&](int round, Values(&values)[kBatch], bool(&there)[kBatch]) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int pack = kFirst + round * kRound + j * kThreads + thread;
      there[j] = pack < packs;
      if (there[j]) values[j] = Values::load(z + int64_t{pack} * kWide);
    }
  };
  for (int round = 0; round < rounds; ++round) {
    Values values[kBatch];
    bool there[kBatch];
    load_round(round, values, there);
    add(values, there);
  }
  Values held[kHeld];
  bool kept[kHeld];
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    kept[j] = j * kThreads + thread < packs;
    if (kept[j]) held[j] = Values::load(z + int64_t{j * kThreads + thread} * kWide);
  }
  add(held, kept);
  for (int i = first_rest + thread; i < int(rows.classes); i += kThreads)
    mine = merge_base2(mine, {float(z[i]) * kLog2e, 1.f});
  const Partial all = block_merge_base2(mine);  // its barrier: everybody has read the label's logit
  const Loss loss =
      row_loss({all.largest * (1.f / kLog2e), all.sum, target}, label);  // ln of the sum, as ever
  if (thread == 0) *loss_out = loss.loss;

  if (label.ignored || weight == 0.f) {  // no gradient, whatever the logits are
    for (int pack = thread; pack < packs; pack += kThreads)
      Values{{0u, 0u, 0u, 0u}}.store(z + int64_t{pack} * kWide);
    for (int i = first_rest + thread; i < int(rows.columns); i += kThreads) z[i] = T(0.f);
    return;
  }
  // dz = weight e^(z - lse) = sign(weight) 2^(z log2e + magnitude)
  const float magnitude = log2f(fabsf(weight)) - loss.lse * kLog2e;
  const float sign = copysignf(1.f, weight);
  const auto write_gradient = [&](const Values& in, int pack) {
    float values[kWide];
    in.open(values);
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      values[i] = sign * exp2_fast(fmaf(values[i], kLog2e, magnitude));
    Values::close(values).store(z + int64_t{pack} * kWide);
  };
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    if (kept[j]) write_gradient(held[j], j * kThreads + thread);
  for (int round = rounds - 1; round >= 0; --round) {
    Values values[kBatch];
    bool there[kBatch];
    load_round(round, values, there);
#pragma unroll
    for (int j = 0; j < kBatch; ++j)
      if (there[j]) write_gradient(values[j], kFirst + round * kRound + j * kThreads + thread);
  }
  for (int i = first_rest + thread; i < int(rows.columns); i += kThreads) {
    const float softmax = i < int(rows.classes) ? __expf(float(z[i]) - loss.lse) : 0.f;
    z[i] = T(softmax * weight);
  }
  if (label.column < 0) return;
  __syncthreads();  // the label's element was written above, by whoever has it
  if (thread == 0) z[label.column] = T((__expf(target - loss.lse) - 1.f) * weight);
}

}  // namespace phx::kernels::cuda::entropy
