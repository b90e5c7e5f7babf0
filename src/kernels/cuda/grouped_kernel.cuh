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
#pragma once

#include "phalanx/core/cuda/vector.cuh"
#include "phalanx/kernels/cuda/grouped_store.cuh"
#include "phalanx/kernels/cuda/grouped_tiles.cuh"
#include "phalanx/kernels/cuda/hopper.cuh"

namespace phx::kernels::cuda::grouped {

using namespace phx::cuda;

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

}  // namespace phx::kernels::cuda::grouped
