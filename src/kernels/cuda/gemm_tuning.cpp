// Times cuBLASLt's algorithms. The card is kept busy all the while, so that it runs at the clock
// that its power limit allows in training, and the candidates take turns, so that a drift of the
// clock hits all of them.
#include "phalanx/kernels/gemm_tuning.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "phalanx/core/cuda/check.h"
#include "phalanx/kernels/cuda/cublas_lt.h"
#include "phalanx/kernels/cuda/gemm_table.h"
#include "phalanx/kernels/random_fill.h"

namespace phx::kernels::cuda {

namespace {

constexpr int kCandidates = 24;
constexpr int kRounds = 7;
constexpr double kTurnMs = 3;         // of one candidate in one round
constexpr double kHopeless = 1.2;     // times the best of the first round: no further turns
constexpr double kWorthwhile = 0.99;  // of the first choice's time: what is not faster stays out

// Operands of random numbers: zeros would draw less power.
Tensor random_matrix(cudaDataType_t type, int64_t elements, Device device) {
  const DType dtype = type == CUDA_R_32F    ? DType::f32
                      : type == CUDA_R_16BF ? DType::bf16
                                            : DType::f16;
  Tensor x = empty({elements}, dtype, device, Purpose::runtime);
  kernels::fill_normal(x, whole_box(x), {.seed = 1});
  return x;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Stopwatch {
 public:
  explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
    PHX_CUDA_CHECK(cudaEventCreate(&begin_));
    PHX_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  template <class F>
  double ms(int times, F&& f) {
    PHX_CUDA_CHECK(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < times; ++i) f();
    PHX_CUDA_CHECK(cudaEventRecord(end_, stream_));
    PHX_CUDA_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    PHX_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    return double(ms) / times;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_, end_;
};

struct Timed {
  cublasLtMatmulAlgo_t algorithm;
  std::vector<double> ms;
};

// The candidates' times; the library's first choice comes first.
std::vector<Timed> time_candidates(CublasLt& lt, const LtProblem& p, Runtime& runtime) {
  const auto stream = static_cast<cudaStream_t>(runtime.stream(StreamName::compute).native());
  const Device device = runtime.device();
  const auto matrices = [&](cudaDataType_t type, int64_t rows, int64_t columns,
                            const GemmLayout& of) {
    const int64_t matrix = columns * (of.row > 0 ? of.row : rows);
    return random_matrix(type, matrix + (p.batch - 1) * (of.matrix > 0 ? of.matrix : matrix),
                         device);
  };
  const Tensor a =
      matrices(p.operand_type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.layout_a);
  const Tensor b =
      matrices(p.operand_type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.layout_b);
  const Tensor c = matrices(p.out_type, p.m, p.n, p.layout_c);
  const Tensor bias = random_matrix(p.out_type, p.m, device);
  const Tensor scratch = empty({CublasLt::kWorkspaceBytes}, DType::u8, device, Purpose::workspace);
  const CublasLt::Operands operands{a.raw(), b.raw(), c.raw(), c.raw(), bias.raw()};
  const CublasLt::Workspace workspace{scratch.raw(), size_t(scratch.bytes())};
  // Gradients of weights are added to, scores (in strides) are not; a huge alpha would only make
  // infinities.
  const bool adds = p.out_type != p.operand_type && p.layout_a == GemmLayout{};
  const float beta = adds ? 1.f : 0.f;
  Stopwatch watch(stream);
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return lt.try_multiply(p, algorithm, operands, 1e-3f, beta, workspace, stream);
  };

  std::vector<Timed> timed;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (const cublasLtMatmulAlgo_t& algorithm : lt.candidates(p, workspace.bytes, kCandidates)) {
    status = run(algorithm);
    if (status == CUBLAS_STATUS_SUCCESS) timed.push_back({algorithm, {}});
  }
  PHX_CHECK(!timed.empty(), "cuBLASLt: none of its algorithms computes ", describe(p), ": ",
            lt.text(status));
  const double once = watch.ms(3, [&] { run(timed[0].algorithm); });
  const int times = std::max(1, int(kTurnMs / std::max(once, 1e-3)));
  for (int round = 0; round < kRounds; ++round) {
    for (Timed& candidate : timed)
      candidate.ms.push_back(watch.ms(times, [&] { run(candidate.algorithm); }));
    if (round > 0) continue;
    double best = timed[0].ms[0];
    for (const Timed& candidate : timed) best = std::min(best, candidate.ms[0]);
    std::erase_if(timed, [&](const Timed& candidate) {
      return &candidate != timed.data() && candidate.ms[0] > kHopeless * best;
    });
  }
  return timed;
}

}  // namespace

std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& path,
                                  const std::function<void(const TunedGemm&)>& progress,
                                  TuneWhich which) {
  CublasLt& lt = runtime.extension<CublasLt>();
  GemmTable table;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) table = GemmTable::read(path);
  if (table.gpu != lt.gpu() || table.library != lt.version()) table = {lt.gpu(), lt.version(), {}};

  runtime.synchronize();
  std::vector<TunedGemm> results;
  for (const LtProblem& problem : lt.problems()) {
    if (which == TuneWhich::only_new && table.algorithms.contains(problem)) continue;
    const std::vector<Timed> timed = time_candidates(lt, problem, runtime);
    const Timed* best = &timed[0];
    for (const Timed& candidate : timed)
      if (median(candidate.ms) < median(best->ms)) best = &candidate;
    TunedGemm result{.problem = describe(problem),
                     .candidates = int(timed.size()),
                     .flops = problem.flops(),
                     .first_ms = median(timed[0].ms),
                     .best_ms = median(best->ms)};
    if (result.best_ms > kWorthwhile * result.first_ms) {
      best = &timed[0];
      result.best_ms = result.first_ms;
    }
    table.algorithms[problem] = {best->algorithm, result.first_ms, result.best_ms};
    if (progress) progress(result);
    results.push_back(std::move(result));
  }
  table.write(path);
  return results;
}

void expect_gemms(Runtime& runtime, const std::set<GemmProblem>& products) {
  CublasLt& lt = runtime.extension<CublasLt>();
  for (const GemmProblem& product : products) lt.expect(lt_problem(product));
}

std::vector<std::string> describe_shipped_gemm_tables() {
  std::vector<std::string> lines;
  for (const GemmTable& table : shipped_gemm_tables())
    lines.push_back(str_cat(table.gpu, ", cuBLASLt ", table.library, ": ", table.algorithms.size(),
                            " products"));
  return lines;
}

GemmTuning gemm_tuning(Runtime& runtime) { return runtime.extension<CublasLt>().tuning(); }

Path default_gemm_table(Runtime& runtime) {
  const CublasLt& lt = runtime.extension<CublasLt>();
  return default_gemm_table(lt.gpu(), lt.version());
}

}  // namespace phx::kernels::cuda
