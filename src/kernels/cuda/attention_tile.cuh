// What our attention kernels are made of: tiles of a head in shared memory and products of a warp.
//
// A warp owns 16 rows of an output. Its sums lie as the tensor cores' m16n8k16 leaves them: in
// sum[j][i], lane l holds row l / 4 + 8 (i / 2), column 8 j + 2 (l % 4) + i % 2. The f32 products
// are plain fused multiply-adds into that same layout, so everything around them is written once.
#pragma once

#include <initializer_list>

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/core/philox.h"
#include "phalanx/core/small_float.h"
#include "phalanx/kernels/attention.h"
#include "phalanx/kernels/attention_dropout.h"

namespace phx::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kTileRows = 64;  // of the tile that a block owns: 16 a warp, 4 warps

// A head view on the device.
template <class T>
struct Heads {
  T* data;
  int64_t stride_s, stride_b, stride_n;

  __device__ T* at(int64_t row, int64_t batch, int64_t head) const {
    return data + row * stride_s + batch * stride_b + head * stride_n;
  }
};

template <class T>
Heads<T> heads(const HeadView& view) {
  return {view.data<T>(), view.stride_s, view.stride_b, view.stride_n};
}

// Everything that a kernel needs to know beside its tensors.
struct AttentionShape {
  int n, group;           // query heads; query heads a key head
  int d, dv;              // channels of q and k, and of v and o; dv <= d
  int sq, sk;             // rows, over all packed sequences
  const int* cu_seqlens;  // nullptr: not packed
  bool causal;
  int window;          // -1: none
  float scale;         // of q . k
  float softcap;       // 0: none
  bool vector;         // rows are aligned to 16 bytes, and d fills whole vectors
  bool pairs;          // outputs are aligned to two elements
  uint32_t threshold;  // of dropout, in 1/256; 0: none
  float kept;          // what a kept weight is multiplied by
  uint64_t key;        // of Philox
  uint32_t first_sample, sample_stride, first_head;
  int sample_tokens;  // of a packed row
};

// `views` are all that the kernel reads and writes.
AttentionShape attention_shape(const AttentionInputs& in, const AttentionOptions& options,
                               std::initializer_list<const HeadView*> views);

// Calls f.template operator()<D>() with the head size rounded up to what kernels are compiled for.
template <class F>
void for_head_size(int64_t d, F&& f) {
  if (d <= 64)
    f.template operator()<64>();
  else if (d <= 128)
    f.template operator()<128>();
  else
    f.template operator()<256>();
}

// Rows of the tiles that a block runs over: fewer where 64 would not fit into shared memory.
template <class T, int D>
inline constexpr int kLoopRows = sizeof(T) == 4 && D == 256 ? 32 : 64;

// One sequence: where its rows begin and how many there are.
struct DeviceSequence {
  int q_row, k_row, batch, queries, keys;
  int shift;        // position of query 0
  uint32_t sample;  // global, for dropout
  uint32_t place;   // of query 0 within the sample, less its position
};

__device__ inline DeviceSequence sequence_of(const AttentionShape& shape, int index) {
  if (shape.cu_seqlens == nullptr)
    return {0,
            0,
            index,
            shape.sq,
            shape.sk,
            shape.sk - shape.sq,
            shape.first_sample + uint32_t(index) * shape.sample_stride,
            0};
  const int begin = shape.cu_seqlens[index], length = shape.cu_seqlens[index + 1] - begin;
  return {begin,
          begin,
          0,
          length,
          length,
          0,
          shape.first_sample + uint32_t(begin / shape.sample_tokens) * shape.sample_stride,
          uint32_t(begin % shape.sample_tokens)};
}

__device__ inline bool visible(const AttentionShape& shape, int position, int key) {
  return (!shape.causal || key <= position) && (shape.window < 0 || key >= position - shape.window);
}

// Which of 16 keys dropout keeps for a query: those of call `call` (kernels/attention_dropout.h).
__device__ inline uint32_t kept_keys(const AttentionShape& shape, const DeviceSequence& seq,
                                     int head, int position, uint32_t call) {
  return kept_bits(philox4x32(shape.key, seq.sample, shape.first_head + uint32_t(head),
                              seq.place + uint32_t(position), call),
                   shape.threshold);
}

// The same for a tile: of kQueries queries from `position` on, four calls each, which decide the 64
// keys that `key` is among. The threads of a block share the calls.
template <int kQueries>
__device__ void make_mask(const AttentionShape& shape, const DeviceSequence& seq, int head,
                          int position, int key, uint16_t* mask) {
  for (int i = threadIdx.x; i < kQueries * 4; i += blockDim.x)
    mask[i] = uint16_t(
        kept_keys(shape, seq, head, position + i / 4, uint32_t(key / kDropoutKeys * 4 + i % 4)));
}
__device__ inline bool is_kept(const uint16_t* mask, int query, int key) {
  return mask[query * 4 + key % 8 / 2] >> dropout_bit(key) & 1u;
}

// The length of a row of a tile in shared memory: 16 bytes more than a multiple of 128, so that 8
// rows of 16 bytes lie in different banks.
template <class T>
constexpr int padded_row(int width) {
  return width + 16 / int(sizeof(T));
}

// tile [kRows, padded_row(kWide)] from rows [first, first + count) and `width` channels of a head,
// zero elsewhere.
template <int kRows, int kWide, class T>
__device__ void load_tile(const AttentionShape& shape, const T* from, int64_t stride, int count,
                          int width, T* tile) {
  constexpr int kLd = padded_row<T>(kWide), kVector = 16 / int(sizeof(T));
  if (shape.vector) {
    for (int i = threadIdx.x; i < kRows * (kWide / kVector); i += blockDim.x) {
      const int row = i / (kWide / kVector), column = i % (kWide / kVector) * kVector;
      uint4 value = {0, 0, 0, 0};
      if (row < count && column < width)
        value = *reinterpret_cast<const uint4*>(from + row * stride + column);
      *reinterpret_cast<uint4*>(tile + row * kLd + column) = value;
    }
  } else {
    for (int i = threadIdx.x; i < kRows * kWide; i += blockDim.x) {
      const int row = i / kWide, column = i % kWide;
      tile[row * kLd + column] =
          row < count && column < width ? from[row * stride + column] : T(0.f);
    }
  }
}

__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
}

__device__ inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(at)
               : "memory");
}

template <class T>
__device__ void mma_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// sum [16, 8 kTiles] += a [16, kDepth] b^T, b [8 kTiles, kDepth]; both tiles in shared memory.
template <int kDepth, int kTiles, class T>
__device__ void add_product_nt(float (&sum)[kTiles][4], const T* a, int lda, const T* b, int ldb) {
  const int lane = threadIdx.x % kWarp;
  if constexpr (sizeof(T) == 2) {
    static_assert(kTiles % 2 == 0);
#pragma unroll 4
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t fa[4], fb[4];
      load_matrices(fa, a + (lane % 16) * lda + k + 8 * (lane / 16));
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        load_matrices(fb, b + (8 * j + lane % 8 + 8 * (lane / 16)) * ldb + k + lane / 8 % 2 * 8);
        mma_16x8x16<T>(sum[j], fa, fb[0], fb[1]);
        mma_16x8x16<T>(sum[j + 1], fa, fb[2], fb[3]);
      }
    }
  } else {
    const T* a0 = a + lane / 4 * lda;
    const T* b0 = b + 2 * (lane % 4) * ldb;
#pragma unroll 2
    for (int k = 0; k < kDepth; k += 4) {
      const float4 top = *reinterpret_cast<const float4*>(a0 + k);
      const float4 low = *reinterpret_cast<const float4*>(a0 + 8 * lda + k);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float4 other = *reinterpret_cast<const float4*>(b0 + (8 * j + i) * ldb + k);
          float& up = sum[j][i];
          float& down = sum[j][2 + i];
          up = fmaf(top.x, other.x, up), down = fmaf(low.x, other.x, down);
          up = fmaf(top.y, other.y, up), down = fmaf(low.y, other.y, down);
          up = fmaf(top.z, other.z, up), down = fmaf(low.z, other.z, down);
          up = fmaf(top.w, other.w, up), down = fmaf(low.w, other.w, down);
        }
      }
    }
  }
}

// sum [16, 8 kTiles] += a [16, kDepth] b, b [kDepth, 8 kTiles].
template <int kDepth, int kTiles, class T>
__device__ void add_product_nn(float (&sum)[kTiles][4], const T* a, int lda, const T* b, int ldb) {
  const int lane = threadIdx.x % kWarp;
  if constexpr (sizeof(T) == 2) {
    static_assert(kTiles % 2 == 0);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t fa[4], fb[4];
      load_matrices(fa, a + (lane % 16) * lda + k + 8 * (lane / 16));
#pragma unroll
      for (int j = 0; j < kTiles; j += 2) {
        load_matrices_transposed(fb, b + (k + lane % 16) * ldb + 8 * j + 8 * (lane / 16));
        mma_16x8x16<T>(sum[j], fa, fb[0], fb[1]);
        mma_16x8x16<T>(sum[j + 1], fa, fb[2], fb[3]);
      }
    }
  } else {
    const T* a0 = a + lane / 4 * lda;
    const T* b0 = b + 2 * (lane % 4);
#pragma unroll 2
    for (int k = 0; k < kDepth; ++k) {
      const float top = a0[k], low = a0[8 * lda + k];
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const float2 other = *reinterpret_cast<const float2*>(b0 + k * ldb + 8 * j);
        sum[j][0] = fmaf(top, other.x, sum[j][0]);
        sum[j][1] = fmaf(top, other.y, sum[j][1]);
        sum[j][2] = fmaf(low, other.x, sum[j][2]);
        sum[j][3] = fmaf(low, other.y, sum[j][3]);
      }
    }
  }
}

// The warp's 16 rows of sums into shared memory, rounded to T.
template <int kTiles, class T>
__device__ void put_tile(const float (&sum)[kTiles][4], T* tile, int ld) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      phx::cuda::Pack<T, 2> pair;
      pair[0] = T(sum[j][2 * half]);
      pair[1] = T(sum[j][2 * half + 1]);
      phx::cuda::store(tile + (lane / 4 + 8 * half) * ld + 8 * j + 2 * (lane % 4), pair);
    }
  }
}

// The warp's 16 rows, times factor[half], to rows of a head; rows beyond `count` and columns beyond
// `width` stay untouched. `row` and `column` say where the warp's part of the tile begins.
template <int kTiles, class T>
__device__ void store_rows(const AttentionShape& shape, const float (&sum)[kTiles][4],
                           const float (&factor)[2], T* to, int64_t stride, int row, int column,
                           int count, int width) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + lane / 4 + 8 * half;
    if (at >= count) continue;
    T* out = to + at * stride;
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int c = column + 8 * j + 2 * (lane % 4);
      phx::cuda::Pack<T, 2> pair;
      pair[0] = T(sum[j][2 * half] * factor[half]);
      pair[1] = T(sum[j][2 * half + 1] * factor[half]);
      if (shape.pairs && c + 1 < width) {
        phx::cuda::store(out + c, pair);
      } else {
        if (c < width) out[c] = pair[0];
        if (c + 1 < width) out[c + 1] = pair[1];
      }
    }
  }
}

}  // namespace phx::kernels::cuda
