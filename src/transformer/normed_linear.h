// Linears together with the norm before or after them, under Megatron's names: a fused norm's
// weight is the linear's "layer_norm_weight"; a norm on the output is "post_layernorm".
#pragma once

#include <optional>

#include "nn/linear.h"
#include "nn/norm.h"
#include "transformer/forward_context.h"
#include "transformer/transformer_config.h"

namespace phx {

NormSpec norm_spec(const TransformerConfig& config, int64_t width);

class NormedLinear : public Linear {
 public:
  NormedLinear(const NormSpec& norm, int64_t in, int64_t out, const LinearOptions& options);
  Tensor forward(const Tensor& x) {
    return Linear::forward(norm_.forward(x));
  }  // [.., in] -> [.., out]

 private:
  Norm norm_;
};

// The linear at the end of a branch, whose output joins the residual stream.
class BranchLinear : public Linear {
 public:
  // `post_norm`: the output is normalised first (Gemma-2).
  BranchLinear(int64_t in, int64_t out, const LinearOptions& options,
               const std::optional<NormSpec>& post_norm);

  // residual + dropout(post_norm(x W^T + b))
  Tensor add_to(const Tensor& residual, const Tensor& x, double dropout, const std::string& site,
                const ForwardContext& context);

 private:
  std::optional<NormModule> post_norm_;
};

}  // namespace phx
