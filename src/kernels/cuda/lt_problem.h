// A product as cuBLASLt sees it.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>

#include "phalanx/kernels/gemm_problem.h"

namespace phx::kernels::cuda {

// Column-major d [m, n] = op(a) op(b), d written over c.
struct LtProblem {
  cudaDataType_t operand_type, out_type;
  int64_t m, n, k, batch;
  bool transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  uint32_t align_a, align_b, align_c;  // bytes that the addresses are multiples of, 256 at most
  // `row` is a column here: the library's matrices are column-major.
  GemmLayout layout_a = {}, layout_b = {}, layout_c = {};

  auto operator<=>(const LtProblem&) const = default;
  double flops() const { return 2.0 * double(m) * double(n) * double(k) * double(batch); }
};

// A row-major [r, c] is a column-major [c, r], so c^T = op(b)^T op(a)^T is asked for with the
// operands swapped: what is stored transposed for us is plain for cuBLASLt and the other way round,
// hence "TN", the layout that Hopper likes best, for x [.., in] times a weight [out, in]. The bias,
// one value a row of the column-major result, is ours [n].
LtProblem lt_problem(const GemmProblem& problem);

}  // namespace phx::kernels::cuda
