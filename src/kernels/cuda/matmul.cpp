#include "phalanx/kernels/matmul.h"

#include <algorithm>
#include <bit>

#include "phalanx/kernels/cuda/cublas_lt.h"

namespace phx::kernels::cuda {

namespace {

cudaDataType_t lt_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f16:
      return CUDA_R_16F;
    default:
      throw_error(str_cat("matmul on CUDA takes f32, bf16 and f16, not ", name(dtype)));
  }
}

uint32_t alignment_of(const Tensor& x) {
  const auto at = reinterpret_cast<uintptr_t>(x.raw());
  return uint32_t(1) << std::min(8, std::countr_zero(at));
}

cublasLtEpilogue_t epilogue_of(const MatmulOptions& options) {
  const bool bias = options.bias.defined();
  if (options.activation == MatmulActivation::gelu)
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

// A row-major [r, c] is a column-major [c, r], so c^T = op(b)^T op(a)^T is asked for with the
// operands swapped: what is stored transposed for us is plain for cuBLASLt and the other way round,
// hence "TN", the layout that Hopper likes best, for x [.., in] times a weight [out, in]. The bias,
// one value a row of the column-major result, is ours [n].
void matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options,
            const MatmulProblem& problem, Tensor& workspace, const Sink& c) {
  const Tensor& old = options.add.defined() ? options.add : c.tensor;
  const LtProblem lt{.operand_type = lt_type(a.dtype()),
                     .out_type = lt_type(c.tensor.dtype()),
                     .m = problem.n,
                     .n = problem.m,
                     .k = problem.k,
                     .batch = problem.batch,
                     .transpose_a = options.transpose_b,
                     .transpose_b = options.transpose_a,
                     .epilogue = epilogue_of(options),
                     .align_a = alignment_of(b),
                     .align_b = alignment_of(a),
                     .align_c = std::min(alignment_of(c.tensor), alignment_of(old))};
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
