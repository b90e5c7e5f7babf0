// How a product is cut on cpu. Sizes depend on shapes alone.
#pragma once

#include <algorithm>

#include "phalanx/base/math.h"
#include "phalanx/kernels/matmul.h"

namespace phx::kernels {

// 16-bit operands are widened block by block: blocks of a, b and (if c is 16-bit) c in f32.
struct MatmulBlocks {
  int64_t m, n, k;
};

inline MatmulBlocks matmul_blocks(const MatmulProblem& problem) {
  // 1024 x 1024 f32 is 4 MiB: a block is widened once for 1024 uses of each element, and the three
  // blocks together stay inside of a server's last cache.
  constexpr int64_t kMost = 1024;
  return {std::min(problem.m, kMost), std::min(problem.n, kMost), std::min(problem.k, kMost)};
}

// Elements of f32 scratch: a's block, b's block, c's block.
inline int64_t matmul_scratch(const MatmulProblem& problem) {
  const MatmulBlocks block = matmul_blocks(problem);
  return block.m * block.k + block.k * block.n + block.m * block.n;
}

}  // namespace phx::kernels
