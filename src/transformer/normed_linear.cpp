#include "transformer/normed_linear.h"

#include "core/philox.h"
#include "ops/dropout.h"

namespace phx {

NormSpec norm_spec(const TransformerConfig& config, int64_t width) {
  return {.kind = config.normalization == Normalization::RMSNorm ? NormSpec::Kind::rms
                                                                 : NormSpec::Kind::layer,
          .width = width,
          .eps = config.norm_epsilon,
          .zero_centred = config.apply_layernorm_1p};
}

NormedLinear::NormedLinear(const NormSpec& norm, int64_t in, int64_t out,
                           const LinearOptions& options)
    : Linear(in, out, options), norm_(norm) {
  add_parameter("layer_norm_weight", norm_.weight());
  if (norm_.bias() != nullptr) add_parameter("layer_norm_bias", *norm_.bias());
}

BranchLinear::BranchLinear(int64_t in, int64_t out, const LinearOptions& options,
                           const std::optional<NormSpec>& post_norm)
    : Linear(in, out, options) {
  if (!post_norm) return;
  post_norm_.emplace(*post_norm);
  add_child("post_layernorm", *post_norm_);
}

Tensor BranchLinear::add_to(const Tensor& residual, const Tensor& x, double dropout,
                            const std::string& site, const ForwardContext& context) {
  const double p = context.training ? dropout : 0.0;
  const RandomSite random{.seed = context.seed,
                          .site = site_of(site),
                          .step = context.step,
                          .first_sample = context.first_sample,
                          .first_position = context.first_position};
  if (post_norm_) {
    const Tensor branch = post_norm_->forward(forward(x));  // [s, b, h]
    return bias_dropout_add(residual, branch, Tensor(), p, random);
  }
  const Tensor branch = multiply(x);  // [s, b, h]
  if (bias() == nullptr) return bias_dropout_add(residual, branch, Tensor(), p, random);
  return bias_dropout_add(residual, branch, bias()->acquire(), p, random);
}

}  // namespace phx
