#include "phalanx/nn/norm.h"

#include "phalanx/ops/layer_norm.h"
#include "phalanx/ops/rms_norm.h"

namespace phx {

namespace {

ParameterSpec vector(const NormSpec& norm, double value) {
  ParameterSpec spec = whole({norm.width}, Init::constant(value));
  spec.axes = norm.axes;
  return spec;
}

}  // namespace

Norm::Norm(const NormSpec& spec) : spec_(spec), weight_(vector(spec, spec.zero_centred ? 0 : 1)) {
  if (spec.kind == Normalization::LayerNorm) bias_.emplace(vector(spec, 0));
}

Tensor Norm::forward(const Tensor& x) {  // [.., width] -> [.., width]
  const NormOptions options{.eps = spec_.eps, .zero_centred = spec_.zero_centred};
  switch (spec_.kind) {
    case Normalization::LayerNorm:
      return layer_norm(x, weight_.acquire(), bias_->acquire(), options);
    case Normalization::RMSNorm:
      return rms_norm(x, weight_.acquire(), options);
  }
  return {};
}

}  // namespace phx
