// The forward: a block owns 64 queries of a head, a warp 16 of them, and runs over tiles of keys
// with a running maximum and sum. A row of scores lies in four lanes of one warp.
#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_tile.cuh"

namespace phx::kernels::cuda {

AttentionShape attention_shape(const AttentionInputs& in, const AttentionOptions& options,
                               std::initializer_list<const HeadView*> views) {
  const int64_t size = size_of(in.q.dtype());
  auto aligned = [&](int64_t elements) {
    bool all = in.q.d % elements == 0 && in.v.d % elements == 0;
    for (const HeadView* x : views)
      all = all && reinterpret_cast<uintptr_t>(x->base.raw()) % (elements * size) == 0 &&
            x->offset % elements == 0 && x->stride_s % elements == 0 &&
            x->stride_b % elements == 0 && x->stride_n % elements == 0;
    return all;
  };
  const AttentionRandom& random = options.random;
  return {
      .n = narrow<int>(in.q.n),
      .group = narrow<int>(in.q.n / in.k.n),
      .d = narrow<int>(in.q.d),
      .dv = narrow<int>(in.v.d),
      .sq = narrow<int>(in.q.s),
      .sk = narrow<int>(in.k.s),
      .cu_seqlens = in.packed() ? in.cu_seqlens.data<int32_t>() : nullptr,
      .causal = options.causal,
      .window = narrow<int>(std::min<int64_t>(options.window_left, in.k.s)),  // sums stay in range
      .scale = float(attention_scale(in, options)),
      .softcap = float(options.softcap),
      .vector = aligned(16 / size),
      .pairs = aligned(2),
      .threshold = attention_dropout_threshold(options.dropout),
      .kept = float(attention_dropout_scale(options.dropout)),
      .key = philox_key(random.seed, random.site, random.step),
      .first_sample = uint32_t(random.samples.first),
      .sample_stride = uint32_t(random.samples.stride),
      .first_head = uint32_t(random.first_head),
      .sample_tokens = narrow<int>(random.samples.tokens > 0 ? random.samples.tokens : in.q.s)};
}

void check_shared_memory(const AttentionInputs& in, int bytes) {
  const int gpu = in.q.device().runtime().options().cuda_ordinal;
  int most = 0;
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu));
  PHX_CHECK(bytes <= most, "attention: heads of ", in.q.d, " in ", in.q.dtype(), " take ", bytes,
            " bytes of shared memory by our own kernels, and this GPU has ", most,
            "\n  hint: 16-bit types, smaller heads, or no attention dropout");
}

namespace {

constexpr int kThreads = 4 * kWarp;
constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

template <class T>
struct ForwardTensors {
  Heads<T> q, k, v, o;
  float* lse;
};

template <class T, int D>
constexpr int forward_shared_bytes() {
  constexpr int kN = kLoopRows<T, D>;
  return int(sizeof(T)) * ((kTileRows + 2 * kN) * padded_row<T>(D) + kTileRows * padded_row<T>(kN));
}

// The maximum or sum over the four lanes that share a row.
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(const AttentionShape shape, const ForwardTensors<T> tensors) {
  constexpr int kN = kLoopRows<T, D>, kLd = padded_row<T>(D), kLdP = padded_row<T>(kN);
  extern __shared__ __align__(16) unsigned char shared[];
  T* q = reinterpret_cast<T*>(shared);
  T* k = q + kTileRows * kLd;
  T* v = k + kN * kLd;
  T* weights = v + kN * kLd;

  const int head = blockIdx.y, key_head = head / shape.group;
  const DeviceSequence seq = sequence_of(shape, blockIdx.z);
  // Late queries see the most keys; they start first so that the last blocks to run are short.
  const int first = int(gridDim.x - 1 - blockIdx.x) * kTileRows;
  if (first >= seq.queries) return;  // the whole block: this sequence is shorter
  const int queries = min(kTileRows, seq.queries - first);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int row = 16 * warp + lane / 4;          // and row + 8
  const int position = first + row + seq.shift;  // of that query
  load_tile<kTileRows, D>(shape, tensors.q.at(seq.q_row + first, seq.batch, head),
                          tensors.q.stride_s, queries, shape.d, q);

  float sums[D / 8][4] = {};
  float top[2] = {-INFINITY, -INFINITY}, total[2] = {0.f, 0.f};  // top in units of log2
  const int key_end = shape.causal ? min(seq.keys, first + queries + seq.shift) : seq.keys;
  const int key_begin = shape.window < 0 ? 0 : max(0, first + seq.shift - shape.window) / kN * kN;
  for (int key = key_begin; key < key_end; key += kN) {
    const int keys = min(kN, seq.keys - key);
    __syncthreads();  // everybody is done with the last tiles
    load_tile<kN, D>(shape, tensors.k.at(seq.k_row + key, seq.batch, key_head), tensors.k.stride_s,
                     keys, shape.d, k);
    load_tile<kN, D>(shape, tensors.v.at(seq.k_row + key, seq.batch, key_head), tensors.v.stride_s,
                     keys, shape.dv, v);
    __syncthreads();
    float s[kN / 8][4] = {};
    add_product_nt<D>(s, q + 16 * warp * kLd, kLd, k, kLd);

    // Whether every weight of the tile counts: most tiles do.
    const bool whole =
        keys == kN && (!shape.causal || key + kN <= first + seq.shift + 1) &&
        (shape.window < 0 || key >= first + kTileRows - 1 + seq.shift - shape.window);
    float highest[2] = {top[0], top[1]};
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + 8 * j + 2 * (lane % 4) + i % 2;
        float x = s[j][i] * shape.scale;
        if (shape.softcap > 0.f) x = shape.softcap * tanhf(x / shape.softcap);
        s[j][i] = whole || (at < seq.keys && visible(shape, position + 8 * (i / 2), at))
                      ? x * kLog2E
                      : -INFINITY;
        highest[i / 2] = fmaxf(highest[i / 2], s[j][i]);
      }
    }
    float shrink[2], base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      highest[half] = row_max(highest[half]);
      base[half] = highest[half] == -INFINITY ? 0.f : highest[half];  // nothing visible yet
      shrink[half] = exp2f(top[half] - base[half]);
      top[half] = highest[half];
      total[half] *= shrink[half];
    }
    uint32_t kept[2] = {~0u, ~0u};  // bit 2 j + i % 2, of either row
    if (shape.threshold > 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half)
        kept[half] = kept_keys(shape, seq, head, position + 8 * half,
                               uint32_t(key / kDropoutKeys * 4 + lane % 4)) >>
                     dropout_bit(key);
    }
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float p = exp2f(s[j][i] - base[i / 2]);
        total[i / 2] += p;  // this lane's share; the four are added at the end
        s[j][i] = kept[i / 2] >> (2 * j + i % 2) & 1u ? p : 0.f;
      }
    }
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[j][i] *= shrink[i / 2];
    }
    put_tile(s, weights + 16 * warp * kLdP, kLdP);
    __syncwarp();  // a warp reads the rows that it wrote
    add_product_nn<kN>(sums, weights + 16 * warp * kLdP, kLdP, v, kLd);
  }

  float inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] = row_sum(total[half]);
    inverse[half] = shape.kept / total[half];
    if (lane % 4 == 0 && row + 8 * half < queries)
      tensors.lse[(int64_t{seq.batch} * shape.n + head) * shape.sq + seq.q_row + first + row +
                  8 * half] = (top[half] + log2f(total[half])) * kLn2;
  }
  store_rows(shape, sums, inverse, tensors.o.at(seq.q_row + first, seq.batch, head),
             tensors.o.stride_s, 16 * warp, 0, queries, shape.dv);
}

}  // namespace

void own_attention(const AttentionInputs& in, const AttentionOptions& options, const HeadView& o,
                   Tensor& lse) {
  const AttentionShape shape = attention_shape(in, options, {&in.q, &in.k, &in.v, &o});
  const dim3 grid(unsigned(ceil_div(in.max_queries(), kTileRows)), unsigned(in.q.n),
                  unsigned(in.num_seqs()));
  const auto stream = static_cast<cudaStream_t>(in.q.device().compute_stream());
  for_gpu_dtype(in.q.dtype(), [&]<class T>() {
    const ForwardTensors<T> tensors{heads<T>(in.q), heads<T>(in.k), heads<T>(in.v), heads<T>(o),
                                    lse.data<float>()};
    for_head_size(in.q.d, [&]<int D>() {
      constexpr int kShared = forward_shared_bytes<T, D>();
      check_shared_memory(in, kShared);
      PHX_CUDA_CHECK(cudaFuncSetAttribute(forward_kernel<T, D>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
      forward_kernel<T, D><<<grid, kThreads, kShared, stream>>>(shape, tensors);
    });
  });
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace phx::kernels::cuda
