// The backward, without atomics: one kernel for dk and dv, where a block owns 64 keys and runs over
// the queries that see them in order, and one for dq, where a block owns 64 queries and runs over
// their keys. Scores are computed in both: two products more than with atomics, and the same bytes
// every time.
//
// Eight warps: warp w has rows 16 (w % 4) .. + 16 of the owned tile and half w / 4 of the columns,
// of scores as of outputs, so that two sums of 256 channels fit into registers.
#include "phalanx/base/math.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/core/cuda/dispatch.cuh"
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_tile.cuh"

namespace phx::kernels::cuda {

namespace {

constexpr int kThreads = 8 * kWarp;

template <class T>
struct BackwardTensors {
  Heads<T> q, k, v, o, d_o, dq, dk, dv;
  const float* lse;  // [b, n, sq], as delta
  float* delta;
};

// delta = rowsum(do o): a warp a (row, batch, head).
template <class T>
__global__ void delta_kernel(const AttentionShape shape, const BackwardTensors<T> tensors,
                             int64_t rows) {
  const int64_t index = int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (index >= rows) return;  // whole warps
  const int row = int(index % shape.sq);
  const int head = int(index / shape.sq % shape.n), batch = int(index / shape.sq / shape.n);
  const T* o = tensors.o.at(row, batch, head);
  const T* d_o = tensors.d_o.at(row, batch, head);
  float sum = 0.f;
  for (int c = threadIdx.x % kWarp; c < shape.dv; c += kWarp) sum += float(o[c]) * float(d_o[c]);
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % kWarp == 0) tensors.delta[index] = sum;
}

// From a score q . k and dp = do . v to the weight that met v, and the score's gradient. `keep`: 0,
// or what dropout multiplies a kept weight by.
struct Element {
  float weight, ds;
};
__device__ Element differentiate(const AttentionShape& shape, float s, float dp, float lse,
                                 float delta, float keep) {
  float x = s * shape.scale, slope = 1.f;
  if (shape.softcap > 0.f) {
    const float bent = tanhf(x / shape.softcap);
    x = shape.softcap * bent;
    slope = 1.f - bent * bent;
  }
  const float p = __expf(x - lse);
  return {p * keep, p * (dp * keep - delta) * slope};
}

template <class T, int D>
constexpr int backward_shared_bytes() {
  constexpr int kN = kLoopRows<T, D>;
  return int(sizeof(T)) *
             (2 * (kTileRows + kN) * padded_row<T>(D) + 2 * kTileRows * padded_row<T>(kN)) +
         2 * kTileRows * int(sizeof(float)) + 4 * kTileRows * int(sizeof(uint16_t));
}

// The tiles of either kernel: two of the owned rows, two of the rows that it runs over, and two of
// [owned, run over].
template <class T, int D>
struct Tiles {
  static constexpr int kN = kLoopRows<T, D>, kLd = padded_row<T>(D), kLdP = padded_row<T>(kN);
  T *own_a, *own_b, *run_a, *run_b, *weights, *ds;
  float *lse, *delta;
  uint16_t* mask;  // [queries, 4], of dropout

  __device__ explicit Tiles(unsigned char* shared) {
    own_a = reinterpret_cast<T*>(shared);
    own_b = own_a + kTileRows * kLd;
    run_a = own_b + kTileRows * kLd;
    run_b = run_a + kN * kLd;
    weights = run_b + kN * kLd;
    ds = weights + kTileRows * kLdP;
    lse = reinterpret_cast<float*>(ds + kTileRows * kLdP);
    delta = lse + kTileRows;
    mask = reinterpret_cast<uint16_t*>(delta + kTileRows);
  }
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    key_kernel(const AttentionShape shape, const BackwardTensors<T> tensors) {
  using Shared = Tiles<T, D>;
  constexpr int kN = Shared::kN, kLd = Shared::kLd, kLdP = Shared::kLdP;
  extern __shared__ __align__(16) unsigned char shared[];
  const Shared tiles(shared);  // own: k, v; run: q, do

  const int key_head = blockIdx.y;
  const DeviceSequence seq = sequence_of(shape, blockIdx.z);
  const int first = blockIdx.x * kTileRows;  // early keys are seen by the most queries
  if (first >= seq.keys) return;
  const int keys = min(kTileRows, seq.keys - first);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int row = 16 * (warp % 4), column = warp / 4 * (kN / 2), channel = warp / 4 * (D / 2);
  load_tile<kTileRows, D>(shape, tensors.k.at(seq.k_row + first, seq.batch, key_head),
                          tensors.k.stride_s, keys, shape.d, tiles.own_a);
  load_tile<kTileRows, D>(shape, tensors.v.at(seq.k_row + first, seq.batch, key_head),
                          tensors.v.stride_s, keys, shape.dv, tiles.own_b);

  const int begin = shape.causal ? max(0, first - seq.shift) / kN * kN : 0;
  const int end =
      shape.window < 0 ? seq.queries : min(seq.queries, first + keys + shape.window - seq.shift);
  float dk[D / 16][4] = {}, dv[D / 16][4] = {};
  for (int head = key_head * shape.group; head < (key_head + 1) * shape.group; ++head) {
    for (int query = begin; query < end; query += kN) {
      const int queries = min(kN, seq.queries - query);
      __syncthreads();  // everybody is done with the last tiles
      load_tile<kN, D>(shape, tensors.q.at(seq.q_row + query, seq.batch, head), tensors.q.stride_s,
                       queries, shape.d, tiles.run_a);
      load_tile<kN, D>(shape, tensors.d_o.at(seq.q_row + query, seq.batch, head),
                       tensors.d_o.stride_s, queries, shape.dv, tiles.run_b);
      if (threadIdx.x < queries) {
        const int64_t at = (int64_t{seq.batch} * shape.n + head) * shape.sq + seq.q_row + query;
        tiles.lse[threadIdx.x] = tensors.lse[at + threadIdx.x];
        tiles.delta[threadIdx.x] = tensors.delta[at + threadIdx.x];
      }
      if (shape.threshold > 0)
        make_mask<kN>(shape, seq, head, query + seq.shift, first, tiles.mask);
      __syncthreads();
      const bool whole = keys == kTileRows && queries == kN &&
                         (!shape.causal || first + kTileRows <= query + seq.shift + 1) &&
                         (shape.window < 0 || first >= query + kN - 1 + seq.shift - shape.window);
      float s[kN / 16][4] = {}, dp[kN / 16][4] = {};  // [keys, queries]
      add_product_nt<D>(s, tiles.own_a + row * kLd, kLd, tiles.run_a + column * kLd, kLd);
      add_product_nt<D>(dp, tiles.own_b + row * kLd, kLd, tiles.run_b + column * kLd, kLd);
#pragma unroll
      for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = first + row + lane / 4 + 8 * (i / 2);
          const int at = column + 8 * j + 2 * (lane % 4) + i % 2;
          const int position = query + at + seq.shift;
          Element element{0.f, 0.f};
          if (whole || (at < queries && key < seq.keys && visible(shape, position, key))) {
            float keep = 1.f;
            if (shape.threshold > 0) keep = is_kept(tiles.mask, at, key) ? shape.kept : 0.f;
            element = differentiate(shape, s[j][i], dp[j][i], tiles.lse[at], tiles.delta[at], keep);
          }
          s[j][i] = element.weight;
          dp[j][i] = element.ds;
        }
      }
      put_tile(s, tiles.weights + row * kLdP + column, kLdP);
      put_tile(dp, tiles.ds + row * kLdP + column, kLdP);
      __syncthreads();  // the other half of the columns comes from another warp
      add_product_nn<kN>(dv, tiles.weights + row * kLdP, kLdP, tiles.run_b + channel, kLd);
      add_product_nn<kN>(dk, tiles.ds + row * kLdP, kLdP, tiles.run_a + channel, kLd);
    }
  }
  const float scales[2] = {shape.scale, shape.scale}, ones[2] = {1.f, 1.f};
  store_rows(shape, dk, scales, tensors.dk.at(seq.k_row + first, seq.batch, key_head),
             tensors.dk.stride_s, row, channel, keys, shape.d);
  store_rows(shape, dv, ones, tensors.dv.at(seq.k_row + first, seq.batch, key_head),
             tensors.dv.stride_s, row, channel, keys, shape.dv);
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    query_kernel(const AttentionShape shape, const BackwardTensors<T> tensors) {
  using Shared = Tiles<T, D>;
  constexpr int kN = Shared::kN, kLd = Shared::kLd, kLdP = Shared::kLdP;
  extern __shared__ __align__(16) unsigned char shared[];
  const Shared tiles(shared);  // own: q, do; run: k, v

  const int head = blockIdx.y, key_head = head / shape.group;
  const DeviceSequence seq = sequence_of(shape, blockIdx.z);
  const int first = int(gridDim.x - 1 - blockIdx.x) * kTileRows;  // late queries see the most
  if (first >= seq.queries) return;
  const int queries = min(kTileRows, seq.queries - first);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int row = 16 * (warp % 4), column = warp / 4 * (kN / 2), channel = warp / 4 * (D / 2);
  load_tile<kTileRows, D>(shape, tensors.q.at(seq.q_row + first, seq.batch, head),
                          tensors.q.stride_s, queries, shape.d, tiles.own_a);
  load_tile<kTileRows, D>(shape, tensors.d_o.at(seq.q_row + first, seq.batch, head),
                          tensors.d_o.stride_s, queries, shape.dv, tiles.own_b);
  if (threadIdx.x < queries) {
    const int64_t at = (int64_t{seq.batch} * shape.n + head) * shape.sq + seq.q_row + first;
    tiles.lse[threadIdx.x] = tensors.lse[at + threadIdx.x];
    tiles.delta[threadIdx.x] = tensors.delta[at + threadIdx.x];
  }

  const int end = shape.causal ? min(seq.keys, first + queries + seq.shift) : seq.keys;
  const int begin = shape.window < 0 ? 0 : max(0, first + seq.shift - shape.window) / kN * kN;
  float dq[D / 16][4] = {};
  for (int key = begin; key < end; key += kN) {
    const int keys = min(kN, seq.keys - key);
    __syncthreads();  // everybody is done with the last tiles
    load_tile<kN, D>(shape, tensors.k.at(seq.k_row + key, seq.batch, key_head), tensors.k.stride_s,
                     keys, shape.d, tiles.run_a);
    load_tile<kN, D>(shape, tensors.v.at(seq.k_row + key, seq.batch, key_head), tensors.v.stride_s,
                     keys, shape.dv, tiles.run_b);
    if (shape.threshold > 0)
      make_mask<kTileRows>(shape, seq, head, first + seq.shift, key, tiles.mask);
    __syncthreads();
    const bool whole =
        queries == kTileRows && keys == kN &&
        (!shape.causal || key + kN <= first + seq.shift + 1) &&
        (shape.window < 0 || key >= first + kTileRows - 1 + seq.shift - shape.window);
    float s[kN / 16][4] = {}, dp[kN / 16][4] = {};  // [queries, keys]
    add_product_nt<D>(s, tiles.own_a + row * kLd, kLd, tiles.run_a + column * kLd, kLd);
    add_product_nt<D>(dp, tiles.own_b + row * kLd, kLd, tiles.run_b + column * kLd, kLd);
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int query = row + lane / 4 + 8 * (i / 2), position = first + query + seq.shift;
        const int at = key + column + 8 * j + 2 * (lane % 4) + i % 2;
        const bool seen =
            whole || (query < queries && at < seq.keys && visible(shape, position, at));
        float keep = 1.f;
        if (shape.threshold > 0) keep = is_kept(tiles.mask, query, at) ? shape.kept : 0.f;
        dp[j][i] = seen ? differentiate(shape, s[j][i], dp[j][i], tiles.lse[query],
                                        tiles.delta[query], keep)
                              .ds
                        : 0.f;
      }
    }
    put_tile(dp, tiles.ds + row * kLdP + column, kLdP);
    __syncthreads();  // the other half of the columns comes from another warp
    add_product_nn<kN>(dq, tiles.ds + row * kLdP, kLdP, tiles.run_a + channel, kLd);
  }
  const float scales[2] = {shape.scale, shape.scale};
  store_rows(shape, dq, scales, tensors.dq.at(seq.q_row + first, seq.batch, head),
             tensors.dq.stride_s, row, channel, queries, shape.d);
}

template <class Kernel, class... Args>
void launch(Kernel kernel, dim3 grid, int shared_bytes, cudaStream_t stream, const Args&... args) {
  PHX_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  kernel<<<grid, kThreads, shared_bytes, stream>>>(args...);
  PHX_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void own_attention_backward(const AttentionInputs& in, const AttentionOptions& options,
                            const HeadView& o, const Tensor& lse, const HeadView& d_o,
                            Tensor& workspace, const AttentionGradients& grads) {
  const AttentionShape shape = attention_shape(
      in, options, {&in.q, &in.k, &in.v, &o, &d_o, &grads.dq, &grads.dk, &grads.dv});
  const auto stream = static_cast<cudaStream_t>(in.q.device().compute_stream());
  const int64_t rows = in.q.s * in.q.b * in.q.n;
  const dim3 key_grid(unsigned(ceil_div(in.max_keys(), kTileRows)), unsigned(in.k.n),
                      unsigned(in.num_seqs()));
  const dim3 query_grid(unsigned(ceil_div(in.max_queries(), kTileRows)), unsigned(in.q.n),
                        unsigned(in.num_seqs()));
  for_gpu_dtype(in.q.dtype(), [&]<class T>() {
    const BackwardTensors<T> tensors{heads<T>(in.q),     heads<T>(in.k),
                                     heads<T>(in.v),     heads<T>(o),
                                     heads<T>(d_o),      heads<T>(grads.dq),
                                     heads<T>(grads.dk), heads<T>(grads.dv),
                                     lse.data<float>(),  static_cast<float*>(workspace.raw())};
    launch(delta_kernel<T>, dim3(unsigned(ceil_div(rows, kThreads / kWarp))), 0, stream, shape,
           tensors, rows);
    for_head_size(in.q.d, [&]<int D>() {
      constexpr int kShared = backward_shared_bytes<T, D>();
      check_shared_memory(in, kShared);
      launch(key_kernel<T, D>, key_grid, kShared, stream, shape, tensors);
      launch(query_kernel<T, D>, query_grid, kShared, stream, shape, tensors);
    });
  });
}

}  // namespace phx::kernels::cuda
