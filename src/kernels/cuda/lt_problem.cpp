#include "phalanx/kernels/cuda/lt_problem.h"

#include "phalanx/base/error.h"

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

cublasLtEpilogue_t epilogue_of(const GemmProblem& problem) {
  if (problem.activation == MatmulActivation::gelu)
    return problem.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return problem.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

LtProblem lt_problem(const GemmProblem& problem) {
  return {.operand_type = lt_type(problem.operands),
          .out_type = lt_type(problem.out),
          .m = problem.n,
          .n = problem.m,
          .k = problem.k,
          .batch = problem.batch,
          .transpose_a = problem.transpose_b,
          .transpose_b = problem.transpose_a,
          .epilogue = epilogue_of(problem),
          .align_a = problem.align_b,
          .align_b = problem.align_a,
          .align_c = problem.align_c,
          .layout_a = problem.layout_b,
          .layout_b = problem.layout_a,
          .layout_c = problem.layout_c};
}

}  // namespace phx::kernels::cuda
