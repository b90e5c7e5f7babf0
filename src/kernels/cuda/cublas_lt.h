// cuBLASLt, opened at first use: one handle a rank, and for every problem seen so far its
// descriptors and the algorithm that the library's heuristic names first. Nothing is timed, so a
// run computes the same way every time.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <map>
#include <memory>

#include "core/cuda/library.h"
#include "core/runtime.h"

namespace phx::kernels::cuda {

// A product as cuBLASLt sees it: column-major d [m, n] = op(a) op(b), d written over c.
struct LtProblem {
  cudaDataType_t operand_type, out_type;
  int64_t m, n, k, batch;
  bool transpose_a, transpose_b;
  cublasLtEpilogue_t epilogue;
  uint32_t align_a, align_b, align_c;  // bytes that the addresses are multiples of, 256 at most

  auto operator<=>(const LtProblem&) const = default;
};

class CublasLt {
 public:
  explicit CublasLt(Runtime& runtime);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  struct Operands {
    const void* a;
    const void* b;
    void* c;
    const void* bias;  // null if the epilogue has none
  };
  struct Workspace {
    void* data;
    size_t bytes;  // the same at every call: the choice of algorithm depends on it
  };
  // Enqueues c = epilogue(alpha op(a) op(b) + beta c) on `stream`.
  void multiply(const LtProblem& problem, const Operands& operands, float alpha, float beta,
                const Workspace& workspace, cudaStream_t stream);

 private:
  struct Plan {
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
  };
  Plan make_plan(const LtProblem& problem, size_t workspace_bytes);
  void check(cublasStatus_t status, const char* call) const;

  phx::cuda::Library library_;
  decltype(&cublasLtCreate) create_;
  decltype(&cublasLtDestroy) destroy_;
  decltype(&cublasLtMatmul) matmul_;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic_;
  decltype(&cublasLtMatmulDescCreate) desc_create_;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy_;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_;
  decltype(&cublasLtMatrixLayoutCreate) layout_create_;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy_;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set_;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create_;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy_;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_;
  decltype(&cublasLtGetStatusString) status_string_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<LtProblem, Plan> plans_;
};

}  // namespace phx::kernels::cuda
