// cuBLASLt, opened at first use: one handle a rank, and for every problem seen so far its
// descriptors and its algorithm: the one that a table has for it (the user's, made by `phalanx
// tune`, before the program's own), or the one that the library's heuristic names first. Nothing is
// timed, so a run computes the same way every time.
#pragma once

#include <cublasLt.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "phalanx/core/cuda/library.h"
#include "phalanx/core/runtime.h"
#include "phalanx/kernels/cuda/gemm_table.h"
#include "phalanx/kernels/cuda/lt_problem.h"
#include "phalanx/kernels/gemm_tuning.h"

namespace phx::kernels::cuda {

class CublasLt {
 public:
  explicit CublasLt(Runtime& runtime);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  struct Operands {
    const void* a;
    const void* b;
    const void* old;  // what beta multiplies: c itself, or a matrix like it
    void* c;
    const void* bias;  // null if the epilogue has none
  };
  struct Workspace {
    void* data;
    size_t bytes;  // the same at every call: the choice of algorithm depends on it
  };
  // Enqueues c = epilogue(alpha op(a) op(b) + beta old) on `stream`.
  void multiply(const LtProblem& problem, const Operands& operands, float alpha, float beta,
                const Workspace& workspace, cudaStream_t stream);

  // --- for tuning (kernels/gemm_tuning.h)
  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;
  std::vector<LtProblem> problems() const;  // that were multiplied or expected so far
  void expect(const LtProblem& problem);    // as if it had been multiplied
  // What the heuristic proposes, the best guess first.
  std::vector<cublasLtMatmulAlgo_t> candidates(const LtProblem& problem, size_t workspace_bytes,
                                               int most);
  // With this algorithm, which the library may refuse.
  cublasStatus_t try_multiply(const LtProblem& problem, const cublasLtMatmulAlgo_t& algorithm,
                              const Operands& operands, float alpha, float beta,
                              const Workspace& workspace, cudaStream_t stream);
  const char* text(cublasStatus_t status) const { return status_string_(status); }
  const std::string& gpu() const { return gpu_; }
  size_t version() const { return version_(); }
  GemmTuning tuning() const;

 private:
  struct Plan {
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithm;
    bool tuned = false;
    int64_t calls = 0;
  };
  Plan make_plan(const LtProblem& problem) const;  // all but the algorithm
  void destroy(const Plan& plan) const;
  void choose(const LtProblem& problem, size_t workspace_bytes, Plan& plan);
  void read_tables(const std::string& option);
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
  decltype(&cublasLtGetVersion) version_;
  cublasLtHandle_t handle_ = nullptr;
  std::string gpu_;
  std::map<LtProblem, Plan> plans_;
  std::map<LtProblem, TunedAlgorithm> table_;
  std::string table_source_;  // for the log; empty without a table
  bool tables_off_ = false;   // --gemm-table none
};

}  // namespace phx::kernels::cuda
