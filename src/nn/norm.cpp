#include "nn/norm.h"

#include "ops/layer_norm.h"
#include "ops/rms_norm.h"

namespace phx {

Norm::Norm(const NormSpec& spec)
    : spec_(spec), weight_(whole({spec.width}, Init::constant(spec.zero_centred ? 0 : 1))) {
  if (spec.kind == NormSpec::Kind::layer) bias_.emplace(whole({spec.width}, Init::constant(0)));
}

Tensor Norm::forward(const Tensor& x) {  // [.., width] -> [.., width]
  const NormOptions options{.eps = spec_.eps, .zero_centred = spec_.zero_centred};
  if (spec_.kind == NormSpec::Kind::rms) return rms_norm(x, weight_.acquire(), options);
  return layer_norm(x, weight_.acquire(), bias_->acquire(), options);
}

}  // namespace phx
