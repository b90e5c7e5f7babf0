// Grouped products on Hopper: one persistent block a multiprocessor, which takes tiles of 128 x 256
// of the experts' results. One thread keeps the copies of operands running, kStages steps of 64
// values of k ahead; two warpgroups multiply, each 64 rows of the tile. Two blocks may form a
// cluster that takes 256 x 256: each has its own rows, and copies half of the columns' operand for
// both.
//
//   rows              c [rows, n] = a [rows, k] w^T, w [n, k]    A along k, B along k
//   rows_transposed   c [rows, n] = a [rows, k] w, w [k, n]      A along k, B along n
//   weights           c [m, n] = dy^T x, dy [rows, m], x [rows, n]: k are the expert's rows
//
// A copy may reach over an expert's rows into the next one's, or into rows that nobody has written.
// For `rows` these are rows of the result that are not stored. For `weights` they are set to zero
// in shared memory before they are multiplied.
#include <algorithm>
#include <cstring>

#include "phalanx/core/cuda/device_code.h"
#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/grouped.h"
#include "phalanx/kernels/cuda/hopper.cuh"
#include "phalanx/kernels/cuda/launch.cuh"
#include "phalanx/kernels/cuda/tensor_map.h"

namespace phx::kernels::cuda {

namespace {

using namespace phx::cuda;

enum class Grouped { rows, rows_transposed, weights };

constexpr int kTileM = 128, kTileN = 256, kTileK = 64, kStages = 4;
constexpr int kGroupThreads = 128, kConsumers = 2, kThreads = kGroupThreads * (1 + kConsumers);
constexpr int kBox = 64 * kBoxRow;  // bytes of 64 rows
constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2;
constexpr int kStageBytes = kBytesA + kBytesB;
constexpr int kMostGroups = 1024;
static_assert(kBytesA == 2 * kBox && kBytesB == 4 * kBox);

constexpr int shared_bytes(int experts) {
  return 1024 + kStages * (kStageBytes + 2 * int(sizeof(uint64_t))) +
         2 * (experts + 1) * int(sizeof(int));
}

template <class Out>
struct GroupedShape {
  const int* offsets;  // [experts + 1]
  int experts;
  int m, n, k;  // m of `weights`, k of `rows`; the others are the experts' rows
  Out* c;
  float beta;
  int lead, block_m;  // see HopperTuning; block_m in tiles of a cluster
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

struct Tile {
  int expert, m, n;  // first row (within the expert or its matrix) and first column
  int first, rows;   // of the expert
};

// Tiles of kHeight rows in the order of the experts; each thread walks over those of its cluster.
template <int kHeight>
struct Tiles {
  const int *starts, *offsets;  // [experts + 1], in shared memory
  int m_tiles, n_tiles;         // m_tiles of `weights`, else 0
  int block_m;
  int expert = 0;

  __device__ __forceinline__ Tile at(int tile) {
    while (starts[expert + 1] <= tile) ++expert;
    const int first = offsets[expert], rows = offsets[expert + 1] - first;
    const int tall = m_tiles > 0 ? m_tiles : (rows + kHeight - 1) / kHeight;
    const int local = tile - starts[expert], block = local / (block_m * n_tiles);
    const int inside = local - block * block_m * n_tiles;
    const int width = min(block_m, tall - block * block_m);
    return {expert, (block * block_m + inside % width) * kHeight, inside / width * kTileN, first,
            rows};
  }
};

// Which stage comes next, and how often the ring went round.
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Four words in each of four neighbouring lanes: lane q gets word q of all of them.
__device__ __forceinline__ void transpose_quad(uint32_t (&word)[4], int q) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, (q & 1) != 0 ? word[i] : word[i + 1], 1);
    if ((q & 1) != 0)
      word[i] = other;
    else
      word[i + 1] = other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(0xffffffffu, (q & 2) != 0 ? word[i] : word[i + 2], 2);
    if ((q & 2) != 0)
      word[i] = other;
    else
      word[i + 2] = other;
  }
}

template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(both);
  }
}

// A lane's sums of one row: columns 8 j + 2 q (+ 1) are sums[4 j + 2 half] (+ 1). `out` is the
// tile's row; `stored`: whether there is such a row; `width`: columns that the tile has.
template <class Out>
__device__ __forceinline__ void store_row(const float (&sums)[128], int half, Out* out, bool stored,
                                          int width, float beta) {
  const int q = int(threadIdx.x) % 4;
  if constexpr (sizeof(Out) == 2) {
    if (beta == 0.f) {
#pragma unroll
      for (int j = 0; j < 32; j += 4) {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          word[i] = pack<Out>(sums[4 * (j + i) + 2 * half], sums[4 * (j + i) + 2 * half + 1]);
        transpose_quad(word, q);  // lane q: the eight columns from 8 (j + q) on
        const int column = 8 * (j + q);
        if (stored && column < width)
          *reinterpret_cast<uint4*>(out + column) = make_uint4(word[0], word[1], word[2], word[3]);
      }
      return;
    }
  }
  constexpr int kBatch = 8;  // loads that are on their way at once
#pragma unroll
  for (int first = 0; first < 32; first += kBatch) {
    Pack<Out, 2> pair[kBatch];
    if (beta != 0.f) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i)
        if (stored && 8 * (first + i) < width) pair[i] = load<2>(out + 8 * (first + i) + 2 * q);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const float* sum = sums + 4 * (first + i) + 2 * half;
      if (!stored || 8 * (first + i) >= width) continue;
#pragma unroll
      for (int c = 0; c < 2; ++c)
        pair[i][c] = Out(beta != 0.f ? float(pair[i][c]) + sum[c] : sum[c]);
      store(out + 8 * (first + i) + 2 * q, pair[i]);
    }
  }
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

template <class T, class Out, Grouped kProduct, int kCluster>
__global__ void __launch_bounds__(kThreads, 1)
    grouped_kernel(const __grid_constant__ CUtensorMap map_a,
                   const __grid_constant__ CUtensorMap map_b, GroupedShape<Out> shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr bool kWeights = kProduct == Grouped::weights;
  constexpr Major kMajorA = kWeights ? Major::mn : Major::k;
  constexpr Major kMajorB = kProduct == Grouped::rows ? Major::k : Major::mn;

  extern __shared__ uint8_t raw[];
  uint8_t* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
  auto* full = reinterpret_cast<uint64_t*>(stages + kStages * kStageBytes);
  uint64_t* free = full + kStages;
  int *starts = reinterpret_cast<int*>(free + kStages), *offsets = starts + shape.experts + 1;
  const int thread = int(threadIdx.x), lane = thread % 32, group = thread / kGroupThreads;

  constexpr int kHeight = kTileM * kCluster;
  const int rank = kCluster > 1 ? cluster_rank() : 0;
  const int first_tile = int(blockIdx.x) / kCluster, next_tile = int(gridDim.x) / kCluster;
  Tiles<kHeight> tiles{.starts = starts,
                       .offsets = offsets,
                       .m_tiles = kWeights ? (shape.m + kHeight - 1) / kHeight : 0,
                       .n_tiles = (shape.n + kTileN - 1) / kTileN,
                       .block_m = shape.block_m};
  const auto tile_at = [&](int at) {
    Tile tile = tiles.at(at);
    tile.m += rank * kTileM;
    return tile;
  };
  for (int i = thread; i <= shape.experts; i += kThreads) offsets[i] = shape.offsets[i];
  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(full + i, 1);
      // A lane of every warp that reads what this block copies.
      barrier_init(free + i, kCluster * kConsumers * kGroupThreads / 32);
    }
    barrier_init_done();
    prefetch_map(&map_a);
    prefetch_map(&map_b);
  }
  __syncthreads();
  if (thread < 32) {  // how many tiles are before each expert's
    int before = 0;
    for (int first = 0; first < shape.experts; first += 32) {
      const int i = first + lane;
      int count = 0;
      if (i < shape.experts) {
        const int rows = offsets[i + 1] - offsets[i];
        // An expert without rows: its matrix is set to zero, or stays as it is.
        if (kWeights)
          count = rows == 0 && shape.beta != 0.f ? 0 : tiles.m_tiles * tiles.n_tiles;
        else
          count = (rows + kHeight - 1) / kHeight * tiles.n_tiles;
      }
      int sum = count;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
      }
      if (i < shape.experts) starts[i] = before + sum - count;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0) starts[shape.experts] = before;
  }
  if constexpr (kCluster > 1)
    cluster_sync();  // the other block's barriers are ready, too
  else
    __syncthreads();
  const int num_tiles = starts[shape.experts];
  const auto steps_of = [&](const Tile& tile) {
    return ((kWeights ? tile.rows : shape.k) + kTileK - 1) / kTileK;
  };
  Ring ring;

  if (group == 0) {
    fewer_registers<56>();
    if (thread == 0) {
      for (int at = first_tile; at < num_tiles; at += next_tile) {
        const Tile tile = tile_at(at);
        const int steps = steps_of(tile);
        for (int step = 0; step < steps; ++step, ring.next()) {
          barrier_wait(free + ring.stage, ring.parity ^ 1);
          uint64_t* barrier = full + ring.stage;
          uint8_t *a = stages + ring.stage * kStageBytes, *b = a + kBytesA;
          barrier_expect(barrier, kStageBytes);
          const int k = step * kTileK;
          if constexpr (kWeights) {
#pragma unroll
            for (int i = 0; i < kTileM / 64; ++i)
              copy_box(a + i * kBox, &map_a, barrier, tile.m + 64 * i, tile.first + k);
          } else {
            copy_box(a, &map_a, barrier, k, tile.first + tile.m);
          }
          // This block's share of B, in boxes of 64 columns, or all of it in one along k.
          constexpr int kColumns = kTileN / kCluster;
          const int n = rank * kColumns;
          b += n / 64 * kBox;
          const auto copy_b = [&](uint8_t* to, auto... at) {
            if constexpr (kCluster > 1)
              copy_box_to((1 << kCluster) - 1, to, &map_b, barrier, at...);
            else
              copy_box(to, &map_b, barrier, at...);
          };
          if constexpr (kProduct == Grouped::rows) {
            copy_b(b, k, tile.n + n, tile.expert);
          } else {
#pragma unroll
            for (int i = 0; i < kColumns / 64; ++i) {
              const int column = tile.n + n + 64 * i;
              if constexpr (kWeights)
                copy_b(b + i * kBox, column, tile.first + k);
              else
                copy_b(b + i * kBox, column, k, tile.expert);
            }
          }
          if constexpr (kWeights) {
            // What the sums are added to is in L2 when they are ready: some rows at every step.
            if (shape.beta != 0.f) {
              const int width = min(kTileN, shape.n - tile.n) * int(sizeof(Out));
              const int last = min(tile.m + (step + 1) * kTileM / steps, shape.m);
              for (int row = tile.m + step * kTileM / steps; row < last; ++row)
                prefetch_bytes(shape.c + (int64_t{tile.expert} * shape.m + row) * shape.n + tile.n,
                               uint32_t(width));
            }
          }
        }
      }
    }
  } else {
    more_registers<224>();
    const int half = group - 1, me = thread % kGroupThreads;
    // Each half of the tile's rows begins with a new box, whichever way A lies.
    const uint64_t first_a = operand_at<kMajorA>(stages + half * kBox, kBox);
    const uint64_t first_b = operand_at<kMajorB>(stages + kBytesA, kBox);
    const auto release = [&](int stage) {
      if constexpr (kCluster > 1) {
        if (lane < kCluster) barrier_arrive_at(free + stage, lane);
      } else {
        if (lane == 0) barrier_arrive(free + stage);
      }
    };
    // The second warpgroup starts some steps behind the first and stays there: while one of them
    // stores its sums, the other multiplies.
    constexpr int kLeadBarrier = 1, kOwnBarrier = 2;
    bool led = shape.lead == 0 || first_tile >= num_tiles;
    if (!led && half == 1) named_sync(kLeadBarrier, 2 * kGroupThreads);

    float sums[128];
    for (int at = first_tile; at < num_tiles; at += next_tile) {
      const Tile tile = tile_at(at);
      const int steps = steps_of(tile), most = kWeights ? shape.m : tile.rows;
      const bool works = tile.m + half * 64 < most;  // else none of this half's rows exist
      int last = 0;
      for (int step = 0; step < steps; ++step) {
        barrier_wait(full + ring.stage, ring.parity);
        if (works) {
          if constexpr (kWeights) {
            const int there = tile.rows - step * kTileK;
            if (there < kTileK) {  // the last step: rows of others are multiplied as zeros
              uint8_t* a = stages + ring.stage * kStageBytes + half * kBox;
              uint8_t* b = stages + ring.stage * kStageBytes + kBytesA;
              // Both warpgroups clear all of B: neither waits for the other.
              constexpr int kBoxes = 1 + kTileN / 64, kChunks = kBoxes * kBoxRow / 16;
              for (int i = me; i < (kTileK - there) * kChunks; i += kGroupThreads) {
                const int row = there + i / kChunks, chunk = i % kChunks, box = chunk / 8;
                uint8_t* to = box == 0 ? a : b + (box - 1) * kBox;
                *reinterpret_cast<uint4*>(to + row * kBoxRow + chunk % 8 * 16) =
                    make_uint4(0, 0, 0, 0);
              }
              fence_for_engines();
              named_sync(kOwnBarrier + half, kGroupThreads);
            }
          }
          const uint64_t a = first_a + uint64_t(ring.stage * (kStageBytes >> 4));
          const uint64_t b = first_b + uint64_t(ring.stage * (kStageBytes >> 4));
          products_begin();
#pragma unroll
          for (int i = 0; i < kTileK / 16; ++i)
            multiply_64x256<T, kMajorA, kMajorB>(sums, a + i * kNextProduct<kMajorA>,
                                                 b + i * kNextProduct<kMajorB>, step + i > 0);
          products_commit();
          products_wait<1>();  // the step before is done
        }
        if (step > 0) release(last);
        last = ring.stage;
        ring.next();
        if (half == 0 && !led && step + 1 == shape.lead) {
          named_arrive(kLeadBarrier, 2 * kGroupThreads);
          led = true;
        }
      }
      products_wait<0>();
      if (steps > 0) release(last);
      if (half == 0 && !led) {
        named_arrive(kLeadBarrier, 2 * kGroupThreads);
        led = true;
      }
#pragma unroll
      for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sums[i])::"memory");  // not read before
      if (!works) continue;
      if (steps == 0) {
#pragma unroll
        for (int i = 0; i < 128; ++i) sums[i] = 0.f;
      }
      const int64_t above = kWeights ? int64_t{tile.expert} * shape.m : int64_t{tile.first};
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = tile.m + half * 64 + me / 32 * 16 + lane / 4 + 8 * i;
        store_row(sums, i, shape.c + (above + row) * shape.n + tile.n, row < most, shape.n - tile.n,
                  shape.beta);
      }
    }
  }
  // The other block may still copy into this one's memory, or arrive at its barriers.
  if constexpr (kCluster > 1) cluster_sync();
#endif
}

// Whether this GPU and the code that we have for it know these instructions.
bool on_hopper() {
  static const bool compiled = std::strstr(compiled_archs(), "90a") != nullptr;
  int device = 0, major = 0, minor = 0;
  PHX_CUDA_CHECK(cudaGetDevice(&device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return compiled && major == 9 && minor == 0;
}

bool fits(const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& offsets) {
  const auto aligned = [](const Tensor& x) { return vectorizable(x.dim(-1), x); };
  return (a.dtype() == DType::bf16 || a.dtype() == DType::f16) && b.dtype() == a.dtype() &&
         aligned(a) && aligned(b) && aligned(c) && c.dim(-1) % 8 == 0 &&
         offsets.numel() - 1 <= kMostGroups && on_hopper();
}

template <class T, class Out, Grouped kProduct, int kCluster>
void launch_clusters(const CUtensorMap& a, const CUtensorMap& b, const GroupedShape<Out>& shape,
                     cudaStream_t stream) {
  const auto kernel = grouped_kernel<T, Out, kProduct, kCluster>;
  int device = 0, processors = 0;
  PHX_CUDA_CHECK(cudaGetDevice(&device));
  PHX_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  PHX_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      shared_bytes(kMostGroups)));
  cudaLaunchAttribute cluster{.id = cudaLaunchAttributeClusterDimension};
  cluster.val.clusterDim.x = kCluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  const cudaLaunchConfig_t config{.gridDim = dim3(unsigned(processors / kCluster * kCluster)),
                                  .blockDim = dim3(kThreads),
                                  .dynamicSmemBytes = size_t(shared_bytes(shape.experts)),
                                  .stream = stream,
                                  .attrs = &cluster,
                                  .numAttrs = kCluster > 1 ? 1u : 0u};
  PHX_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, a, b, shape));
}

template <class T, class Out, Grouped kProduct>
void launch(const CUtensorMap& a, const CUtensorMap& b, GroupedShape<Out> shape,
            const HopperTuning& tuning, cudaStream_t stream) {
  shape.lead = std::clamp(tuning.lead, 0, kStages - 1);
  shape.block_m = std::max(1, tuning.block_m / tuning.cluster);
  if (tuning.cluster == 2)
    launch_clusters<T, Out, kProduct, 2>(a, b, shape, stream);
  else
    launch_clusters<T, Out, kProduct, 1>(a, b, shape, stream);
}

// f<T>() for bf16 or f16.
template <class F>
void for_half(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f.template operator()<bf16>();
  else
    f.template operator()<f16>();
}

}  // namespace

bool hopper_grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                           const Sink& c, const HopperTuning& tuning) {
  if (c.tensor.numel() == 0) return true;
  if (!fits(a, w, c.tensor, offsets) || c.tensor.dtype() != a.dtype()) return false;
  const int64_t e = w.dim(0), rows = w.dim(1), columns = w.dim(2);
  const CUtensorMap map_a = tensor_map(a.raw(), a.dtype(), {a.dim(-1), a.dim(0)}, {kTileK, kTileM});
  const CUtensorMap map_w = tensor_map(w.raw(), w.dtype(), {columns, rows, e},
                                       {64, transposed ? kTileK : kTileN / tuning.cluster, 1});
  for_half(a.dtype(), [&]<class T>() {
    const GroupedShape<T> shape{.offsets = offsets.data<int32_t>(),
                                .experts = narrow<int>(e),
                                .m = 0,
                                .n = narrow<int>(c.tensor.dim(-1)),
                                .k = narrow<int>(a.dim(-1)),
                                .c = c.tensor.data<T>(),
                                .beta = c.beta};
    if (transposed)
      launch<T, T, Grouped::rows_transposed>(map_a, map_w, shape, tuning, stream_of(a));
    else
      launch<T, T, Grouped::rows>(map_a, map_w, shape, tuning, stream_of(a));
  });
  return true;
}

bool hopper_grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                                   const Sink& dw, const HopperTuning& tuning) {
  if (dw.tensor.numel() == 0) return true;
  const Tensor& c = dw.tensor;
  if (dy.numel() == 0 || !fits(dy, x, c, offsets) ||
      (c.dtype() != dy.dtype() && c.dtype() != DType::f32))
    return false;
  const auto map_of = [](const Tensor& of) {
    return tensor_map(of.raw(), of.dtype(), {of.dim(-1), of.dim(0)}, {64, kTileK});
  };
  const CUtensorMap map_dy = map_of(dy), map_x = map_of(x);
  for_half(dy.dtype(), [&]<class T>() {
    const auto run = [&]<class Out>() {
      launch<T, Out, Grouped::weights>(map_dy, map_x,
                                       GroupedShape<Out>{.offsets = offsets.data<int32_t>(),
                                                         .experts = narrow<int>(c.dim(0)),
                                                         .m = narrow<int>(c.dim(1)),
                                                         .n = narrow<int>(c.dim(2)),
                                                         .k = 0,
                                                         .c = c.data<Out>(),
                                                         .beta = dw.beta},
                                       tuning, stream_of(dy));
    };
    if (c.dtype() == DType::f32)
      run.template operator()<float>();
    else
      run.template operator()<T>();
  });
  return true;
}

}  // namespace phx::kernels::cuda
