// What the choice of a GPU library's algorithm for a product depends on, and the products that a
// meta device which stands for a GPU would have computed: what `phalanx tune` tunes, without the
// memory that the run itself would take.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "phalanx/kernels/matmul.h"

namespace phx::kernels {

// How far apart the rows of a matrix are, and the matrices of a batch, in elements; 0: they are
// compact.
struct GemmLayout {
  int64_t row = 0, matrix = 0;
  auto operator<=>(const GemmLayout&) const = default;
};

// Row-major c [m, n] = op(a) op(b).
struct GemmProblem {
  DType operands = DType::bf16, out = DType::bf16;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  MatmulActivation activation = MatmulActivation::none;
  // Bytes that the addresses are multiples of, 256 at most.
  uint32_t align_a = 256, align_b = 256, align_c = 256;
  GemmLayout layout_a = {}, layout_b = {}, layout_c = {};

  auto operator<=>(const GemmProblem&) const = default;
  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batch); }
};

GemmProblem gemm_problem(const Tensor& a, const Tensor& b, const MatmulOptions& options,
                         const MatmulProblem& problem, const Sink& c);

struct GemmUse {
  explicit GemmUse(Runtime&) {}
  std::set<GemmProblem> seen;
};

}  // namespace phx::kernels
