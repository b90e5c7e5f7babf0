#include "phalanx/kernels/attention_use.h"

#include "phalanx/base/error.h"
#ifdef PHX_HAVE_CUDA
#include "phalanx/kernels/cuda/attention_own.h"
#include "phalanx/kernels/cuda/attention_trust.h"
#endif

namespace phx::kernels {

void AttentionUse::note(const AttentionInputs& in, const AttentionOptions& options,
                        AttentionPass pass) {
  if (runtime_.target() != DeviceKind::cuda) return;
  const AttentionChoice choice = choose_cuda_attention(in, options, pass);
  seen_.emplace(pass, in.packed(), choice.which, choice.why);
}

std::vector<AttentionUse::Line> AttentionUse::lines() const {
  std::string library = "cuDNN";
#ifdef PHX_HAVE_CUDA
  if (runtime_.kind() == DeviceKind::cuda && !seen_.empty())
    library += " " + cuda::cudnn_version_text(cuda::cudnn_version());
#endif
  std::vector<Line> lines;
  for (const auto& [pass, packed, which, why] : seen_) {
    const char* direction = pass == AttentionPass::forward ? "forward" : "backward";
    const std::string what = str_cat(packed ? "packed attention " : "attention ", direction, ": ");
    if (which == CudaAttention::cudnn)
      lines.push_back({what + library, false});
    else if (which == CudaAttention::products)
      lines.push_back({str_cat(what, "matrix products, row kernels between them; ", why), false});
    else
      lines.push_back({str_cat(what, "our own kernels, several times slower; ", why), true});
  }
  return lines;
}

}  // namespace phx::kernels
