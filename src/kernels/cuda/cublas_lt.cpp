#include "phalanx/kernels/cuda/cublas_lt.h"

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"
#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/cuda/gemm_table.h"

namespace phx::kernels::cuda {

#define PHX_LT_FUNCTION(name) library_.function<decltype(&name)>(#name)

CublasLt::CublasLt(Runtime& runtime)
    : library_("cuBLASLt", {"libcublasLt.so.13", "libcublasLt.so"}),
      create_(PHX_LT_FUNCTION(cublasLtCreate)),
      destroy_(PHX_LT_FUNCTION(cublasLtDestroy)),
      matmul_(PHX_LT_FUNCTION(cublasLtMatmul)),
      heuristic_(PHX_LT_FUNCTION(cublasLtMatmulAlgoGetHeuristic)),
      desc_create_(PHX_LT_FUNCTION(cublasLtMatmulDescCreate)),
      desc_destroy_(PHX_LT_FUNCTION(cublasLtMatmulDescDestroy)),
      desc_set_(PHX_LT_FUNCTION(cublasLtMatmulDescSetAttribute)),
      layout_create_(PHX_LT_FUNCTION(cublasLtMatrixLayoutCreate)),
      layout_destroy_(PHX_LT_FUNCTION(cublasLtMatrixLayoutDestroy)),
      layout_set_(PHX_LT_FUNCTION(cublasLtMatrixLayoutSetAttribute)),
      preference_create_(PHX_LT_FUNCTION(cublasLtMatmulPreferenceCreate)),
      preference_destroy_(PHX_LT_FUNCTION(cublasLtMatmulPreferenceDestroy)),
      preference_set_(PHX_LT_FUNCTION(cublasLtMatmulPreferenceSetAttribute)),
      status_string_(PHX_LT_FUNCTION(cublasLtGetStatusString)),
      version_(PHX_LT_FUNCTION(cublasLtGetVersion)) {
  check(create_(&handle_), "cublasLtCreate");
  int ordinal = 0;
  cudaDeviceProp properties;
  PHX_CUDA_CHECK(cudaGetDevice(&ordinal));
  PHX_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  gpu_ = properties.name;
  read_tables(runtime.options().gemm_table);
}

// A file that is named counts alone. Otherwise the user's entries come before the program's.
void CublasLt::read_tables(const std::string& option) {
  tables_off_ = option == "none";
  if (tables_off_) return;
  if (option.empty())
    if (std::optional<GemmTable> shipped = shipped_gemm_table(gpu_, version())) {
      table_ = std::move(shipped->algorithms);
      table_source_ = "the program's table";
    }
  Path path = option;
  std::error_code ignored;
  if (option.empty()) path = default_gemm_table(gpu_, version());
  if (path.empty() || (option.empty() && !std::filesystem::exists(path, ignored))) return;
  const GemmTable table = GemmTable::read(path);
  PHX_CHECK(table.gpu == gpu_ && table.library == version(), path.string(), " was made for ",
            table.gpu, " and cuBLASLt ", table.library, ", but this is ", gpu_, " with ", version(),
            "\n  hint: make a new one with `phalanx tune`, or leave --gemm-table away");
  for (const auto& [problem, tuned] : table.algorithms) table_[problem] = tuned;
  table_source_ = (table_source_.empty() ? "" : table_source_ + " and ") + path.string();
  log_info(
      str_cat("products: ", table.algorithms.size(), " tuned algorithms from ", path.string()));
}

GemmTuning CublasLt::tuning() const {
  GemmTuning tuning{.gpu = gpu_, .library = version(), .source = table_source_, .off = tables_off_};
  double flops = 0, tuned_flops = 0, first = 0, best = 0;
  for (const auto& [problem, plan] : plans_) {
    if (plan.calls == 0) continue;
    const double all = problem.flops() * double(plan.calls);
    ++tuning.products;
    flops += all;
    if (!plan.tuned) continue;
    ++tuning.tuned;
    tuned_flops += all;
  }
  for (const auto& [problem, tuned] : table_) {
    first += tuned.first_ms;
    best += tuned.best_ms;
  }
  if (flops > 0) tuning.tuned_share = tuned_flops / flops;
  if (first > 0) tuning.gain = 1 - best / first;
  return tuning;
}

#undef PHX_LT_FUNCTION

CublasLt::~CublasLt() {
  for (auto& [problem, plan] : plans_) destroy(plan);
  (void)destroy_(handle_);
}

void CublasLt::destroy(const Plan& plan) const {
  (void)layout_destroy_(plan.a);
  (void)layout_destroy_(plan.b);
  (void)layout_destroy_(plan.c);
  (void)desc_destroy_(plan.matmul);
}

void CublasLt::check(cublasStatus_t status, const char* call) const {
  PHX_CHECK(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: ", call,
            " failed: ", status_string_(status));
}

CublasLt::Plan CublasLt::make_plan(const LtProblem& p) const {
  Plan plan;
  // f32 is full f32: TF32 would keep 10 bits of mantissa.
  check(desc_create_(&plan.matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(desc_set_(plan.matmul, attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);

  const auto layout = [&](cudaDataType_t type, int64_t rows, int64_t columns,
                          const GemmLayout& of) {
    cublasLtMatrixLayout_t made = nullptr;
    const int64_t leading = of.row > 0 ? of.row : rows;
    check(layout_create_(&made, type, uint64_t(rows), uint64_t(columns), leading),
          "cublasLtMatrixLayoutCreate");
    if (p.batch > 1) {
      const auto count = int32_t(p.batch);
      const int64_t stride = of.matrix > 0 ? of.matrix : leading * columns;
      check(layout_set_(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "cublasLtMatrixLayoutSetAttribute");
      check(layout_set_(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
            "cublasLtMatrixLayoutSetAttribute");
    }
    return made;
  };
  plan.a = p.transpose_a ? layout(p.operand_type, p.k, p.m, p.layout_a)
                         : layout(p.operand_type, p.m, p.k, p.layout_a);
  plan.b = p.transpose_b ? layout(p.operand_type, p.n, p.k, p.layout_b)
                         : layout(p.operand_type, p.k, p.n, p.layout_b);
  plan.c = layout(p.out_type, p.m, p.n, p.layout_c);
  return plan;
}

std::vector<cublasLtMatmulAlgo_t> CublasLt::candidates(const LtProblem& p, size_t workspace_bytes,
                                                       int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  check(preference_create_(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check(preference_set_(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_c);
  // A sum over k that is cut in pieces is put together in f32, never in the 16-bit output.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const Plan plan = make_plan(p);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = heuristic_(handle_, plan.matmul, plan.a, plan.b, plan.c, plan.c,
                                           preference, most, results.data(), &found);
  (void)preference_destroy_(preference);
  destroy(plan);
  PHX_CHECK(status == CUBLAS_STATUS_SUCCESS && found > 0, "cuBLASLt has no algorithm for ",
            describe(p), ", epilogue ", int(p.epilogue), ", alignment ", p.align_a, "/", p.align_b,
            "/", p.align_c, ": ", status_string_(status));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(results[size_t(i)].algo);
  return algorithms;
}

void CublasLt::choose(const LtProblem& problem, size_t workspace_bytes, Plan& plan) {
  const auto tuned = table_.find(problem);
  plan.tuned = tuned != table_.end();
  plan.algorithm =
      plan.tuned ? tuned->second.algorithm : candidates(problem, workspace_bytes, 1)[0];
}

void CublasLt::expect(const LtProblem& problem) {
  if (plans_.contains(problem)) return;
  Plan plan = make_plan(problem);
  choose(problem, kWorkspaceBytes, plan);
  plans_.emplace(problem, plan);
}

std::vector<LtProblem> CublasLt::problems() const {
  std::vector<LtProblem> problems;
  for (const auto& [problem, plan] : plans_) problems.push_back(problem);
  return problems;
}

cublasStatus_t CublasLt::try_multiply(const LtProblem& problem,
                                      const cublasLtMatmulAlgo_t& algorithm,
                                      const Operands& operands, float alpha, float beta,
                                      const Workspace& workspace, cudaStream_t stream) {
  const Plan& plan = plans_.at(problem);
  if (problem.epilogue == CUBLASLT_EPILOGUE_BIAS || problem.epilogue == CUBLASLT_EPILOGUE_GELU_BIAS)
    check(desc_set_(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias,
                    sizeof(operands.bias)),
          "cublasLtMatmulDescSetAttribute");
  return matmul_(handle_, plan.matmul, &alpha, operands.a, plan.a, operands.b, plan.b, &beta,
                 operands.old, plan.c, operands.c, plan.c, &algorithm, workspace.data,
                 workspace.bytes, stream);
}

void CublasLt::multiply(const LtProblem& problem, const Operands& operands, float alpha, float beta,
                        const Workspace& workspace, cudaStream_t stream) {
  auto found = plans_.find(problem);
  if (found == plans_.end()) {
    Plan made = make_plan(problem);
    choose(problem, workspace.bytes, made);
    found = plans_.emplace(problem, made).first;
  }
  Plan& plan = found->second;
  ++plan.calls;
  if (operands.bias != nullptr)
    check(desc_set_(plan.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias,
                    sizeof(operands.bias)),
          "cublasLtMatmulDescSetAttribute");
  check(matmul_(handle_, plan.matmul, &alpha, operands.a, plan.a, operands.b, plan.b, &beta,
                operands.old, plan.c, operands.c, plan.c, &plan.algorithm, workspace.data,
                workspace.bytes, stream),
        "cublasLtMatmul");
}

}  // namespace phx::kernels::cuda
