#include "phalanx/kernels/matmul.h"

#include "phalanx/kernels/gemm_problem.h"

namespace phx::kernels::meta {

void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor&, const Sink& c) {
  if (a.device().target() == DeviceKind::cuda)
    a.runtime().extension<GemmUse>().seen.insert(gemm_problem(a, b, options, problem, c));
  const int64_t old = c.beta != 0.f || options.add.defined() ? c.tensor.bytes() : 0;
  const int64_t bias = options.bias.defined() ? options.bias.bytes() : 0;
  a.runtime().count({.flops = 2 * problem.batch * problem.m * problem.n * problem.k,
                     .bytes = a.bytes() + b.bytes() + bias + old + c.tensor.bytes()});
}

}  // namespace phx::kernels::meta
