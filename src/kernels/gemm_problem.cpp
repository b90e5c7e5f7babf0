#include "phalanx/kernels/gemm_problem.h"

#include <algorithm>
#include <bit>

namespace phx::kernels {

namespace {

// Allocations and parameters begin at multiples of 256 bytes. On meta nothing more is known: where
// a GPU's matrix begins elsewhere within one, it has no tuned algorithm, and the run says so.
uint32_t alignment_of(const Tensor& x) {
  if (x.device().kind() == DeviceKind::meta) return 256;
  const auto at = reinterpret_cast<uintptr_t>(x.raw());
  return uint32_t(1) << std::min(8, std::countr_zero(at));
}

}  // namespace

GemmProblem gemm_problem(const Tensor& a, const Tensor& b, const MatmulOptions& options,
                         const MatmulProblem& problem, const Sink& c) {
  const Tensor& old = options.add.defined() ? options.add : c.tensor;
  return {.operands = a.dtype(),
          .out = c.tensor.dtype(),
          .m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .batch = problem.batch,
          .transpose_a = options.transpose_a,
          .transpose_b = options.transpose_b,
          .bias = options.bias.defined(),
          .activation = options.activation,
          .align_a = alignment_of(a),
          .align_b = alignment_of(b),
          .align_c = std::min(alignment_of(c.tensor), alignment_of(old))};
}

}  // namespace phx::kernels
