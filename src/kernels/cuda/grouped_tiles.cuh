// What a grouped product on Hopper is cut into: tiles of the experts' results, and steps along k
// that go round in a ring of shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "phalanx/kernels/cuda/hopper.cuh"

namespace phx::kernels::cuda::grouped {

enum class Grouped { rows, rows_transposed, weights };

inline constexpr int kTileM = 128, kTileN = 256, kTileK = 64, kStages = 4;
inline constexpr int kGroupThreads = 128, kConsumers = 2,
                     kThreads = kGroupThreads * (1 + kConsumers);
inline constexpr int kBox = 64 * phx::cuda::kBoxRow;  // bytes of 64 rows
inline constexpr int kBytesA = kTileM * kTileK * 2, kBytesB = kTileN * kTileK * 2;
inline constexpr int kStageBytes = kBytesA + kBytesB;
inline constexpr int kMostGroups = 1024;
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

}  // namespace phx::kernels::cuda::grouped
