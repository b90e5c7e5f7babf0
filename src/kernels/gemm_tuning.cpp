#include "phalanx/kernels/gemm_tuning.h"

#include "phalanx/base/error.h"

namespace phx::kernels {

#ifdef PHX_HAVE_CUDA
namespace cuda {
std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress);
Path default_gemm_table(Runtime& runtime);
}  // namespace cuda
#endif

std::vector<TunedGemm> tune_gemms(Runtime& runtime, const Path& table,
                                  const std::function<void(const TunedGemm&)>& progress) {
  PHX_CHECK(runtime.kind() == DeviceKind::cuda, "products are tuned on GPUs; on ",
            name(runtime.kind()), " there is nothing to choose");
#ifdef PHX_HAVE_CUDA
  return cuda::tune_gemms(runtime, table, progress);
#else
  (void)table, (void)progress;
  return {};
#endif
}

Path default_gemm_table(Runtime& runtime) {
#ifdef PHX_HAVE_CUDA
  if (runtime.kind() == DeviceKind::cuda) return cuda::default_gemm_table(runtime);
#endif
  (void)runtime;
  return {};
}

}  // namespace phx::kernels
