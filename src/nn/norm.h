// A norm over the last dimension. A new one is a name in norm_kind.h and a case in norm.cpp.
#pragma once

#include <optional>
#include <string>

#include "phalanx/nn/module.h"
#include "phalanx/nn/norm_kind.h"

namespace phx {

struct NormSpec {
  Normalization kind = Normalization::RMSNorm;
  int64_t width = 0;
  double eps = 1e-5;
  bool zero_centred = false;  // the weight is stored minus one
  ParameterAxes axes = {};
};

// Megatron fuses a norm into the linear after it and names the weights "layer_norm_weight" and
// "layer_norm_bias" of that linear; a norm of its own has "weight" and "bias". The names are the
// owner's to register: see parameters().
class Norm {
 public:
  explicit Norm(const NormSpec& spec);
  Tensor forward(const Tensor& x);  // [.., width] -> [.., width]

  Parameter& weight() { return weight_; }
  Parameter* bias() { return bias_ ? &*bias_ : nullptr; }

 private:
  NormSpec spec_;
  Parameter weight_;
  std::optional<Parameter> bias_;
};

// A norm that stands in the tree under its own name.
class NormModule : public Module {
 public:
  explicit NormModule(const NormSpec& spec) : norm_(spec) {
    add_parameter("weight", norm_.weight());
    if (norm_.bias() != nullptr) add_parameter("bias", *norm_.bias());
  }
  Tensor forward(const Tensor& x) { return norm_.forward(x); }
  Parameter& weight() { return norm_.weight(); }

 private:
  Norm norm_;
};

}  // namespace phx
