#include "phalanx/kernels/gemm_tuning.h"

#include <fmt/format.h>

#include "phalanx/base/error.h"

namespace phx::kernels {

#ifdef PHX_HAVE_CUDA
namespace cuda {
std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress,
                                  TuneWhich which);
void expect_gemms(Runtime& runtime, const std::set<GemmProblem>& products);
Path default_gemm_table(Runtime& runtime);
GemmTuning gemm_tuning(Runtime& runtime);
std::vector<std::string> describe_shipped_gemm_tables();
}  // namespace cuda
#endif

namespace {

void check_is_gpu(const Runtime& runtime) {
  PHX_CHECK(runtime.kind() == DeviceKind::cuda, "products are tuned on GPUs; on ",
            name(runtime.kind()), " there is nothing to choose");
}

}  // namespace

std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress,
                                  TuneWhich which) {
  check_is_gpu(runtime);
#ifdef PHX_HAVE_CUDA
  return cuda::tune_gemms(runtime, table, progress, which);
#else
  (void)table, (void)progress, (void)which;
  return {};
#endif
}

void expect_gemms(Runtime& runtime, const std::set<GemmProblem>& products) {
  check_is_gpu(runtime);
#ifdef PHX_HAVE_CUDA
  cuda::expect_gemms(runtime, products);
#else
  (void)products;
#endif
}

Path default_gemm_table(Runtime& runtime) {
#ifdef PHX_HAVE_CUDA
  if (runtime.kind() == DeviceKind::cuda) return cuda::default_gemm_table(runtime);
#endif
  (void)runtime;
  return {};
}

std::vector<std::string> shipped_gemm_tables() {
#ifdef PHX_HAVE_CUDA
  return cuda::describe_shipped_gemm_tables();
#else
  return {};
#endif
}

std::optional<GemmTuning> gemm_tuning(Runtime& runtime) {
#ifdef PHX_HAVE_CUDA
  if (runtime.kind() == DeviceKind::cuda) return cuda::gemm_tuning(runtime);
#endif
  (void)runtime;
  return {};
}

std::string gemm_tuning_line(const GemmTuning& tuning) {
  if (tuning.off) return "products: by the library's choice (--gemm-table none)";
  const std::string fits = fmt::format("{} and cuBLASLt {}", tuning.gpu, tuning.library);
  const std::string gain =
      tuning.gain > 0 ? fmt::format("the table's products gained {:.1f}%", 100 * tuning.gain)
                      : std::string("on an H200 it took about 1% off a step");
  const std::string advice = fmt::format(
      "`phalanx tune` with this run's flags takes about a minute and finds faster ones ({})", gain);
  if (tuning.source.empty())
    return fmt::format("products: by the library's choice: no table fits {}\n  hint: {}", fits,
                       advice);
  if (tuning.tuned == tuning.products)
    return fmt::format("products: all {} tuned, by {} for {}", tuning.products, tuning.source,
                       fits);
  return fmt::format(
      "products: {} of {} tuned, {:.0f}% of their operations, by {} for {}; the library chooses "
      "the "
      "others\n  hint: {}",
      tuning.tuned, tuning.products, 100 * tuning.tuned_share, tuning.source, fits, advice);
}

}  // namespace phx::kernels
