#include "phalanx/kernels/cuda/cublas_lt.h"
#include "phalanx/kernels/gemm_problem.h"

namespace phx::kernels::cuda {

void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor& workspace, const Sink& c) {
  const Tensor& old = options.add.defined() ? options.add : c.tensor;
  const LtProblem lt = lt_problem(gemm_problem(a, b, options, problem, c));
  const CublasLt::Operands operands{.a = b.raw(),
                                    .b = a.raw(),
                                    .old = old.raw(),
                                    .c = c.tensor.raw(),
                                    .bias = options.bias.defined() ? options.bias.raw() : nullptr};
  a.runtime().extension<CublasLt>().multiply(
      lt, operands, options.alpha, options.add.defined() ? 1.f : c.beta,
      {.data = workspace.raw(), .bytes = size_t(workspace.bytes())},
      static_cast<cudaStream_t>(a.device().compute_stream()));
}

}  // namespace phx::kernels::cuda
