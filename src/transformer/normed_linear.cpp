#include "phalanx/transformer/normed_linear.h"

#include "phalanx/core/philox.h"
#include "phalanx/ops/dropout.h"

namespace phx {

NormSpec norm_spec(const TransformerConfig& config, int64_t width, const ParameterAxes& axes) {
  return {.kind = config.normalization,
          .width = width,
          .eps = config.norm_epsilon,
          .zero_centred = config.apply_layernorm_1p,
          .axes = axes};
}

std::optional<NormSpec> post_norm_spec(const TransformerConfig& config, const TensorParallel& tp) {
  if (!config.post_layernorms) return std::nullopt;
  return norm_spec(config, config.hidden_size, axes_in_sequence(tp));
}

RandomSite random_site(const std::string& name, const ForwardContext& context,
                       const TensorParallel& tp, int64_t local_rows) {
  const int64_t skipped = tp.cuts_sequence() ? tp.rank() * local_rows : 0;
  RandomSite site{.seed = context.seed,
                  .site = site_of(name),
                  .step = context.step,
                  .samples = context.samples,
                  .first_position = context.first_position + skipped};
  if (context.cut.ranks == 1) return site;
  // Rows of all context-parallel ranks together.
  const int64_t s = local_rows * (tp.cuts_sequence() ? tp.size() : 1) * context.cut.ranks;
  const std::vector<RowSpan> spans = context.cut.spans(s, skipped, local_rows);
  site.first_position = spans.at(0).global;
  if (spans.size() > 1) {
    site.split = spans[1].local - skipped;
    site.position_after_split = spans[1].global;
  }
  return site;
}

NormedLinear::NormedLinear(const std::optional<NormSpec>& norm, int64_t in, const RowCut& out,
                           const LinearOptions& options, const TensorParallel& tp)
    : ColumnLinear(in, out, options, tp) {
  if (!norm) return;
  norm_.emplace(*norm);
  add_parameter("layer_norm_weight", norm_->weight());
  if (norm_->bias() != nullptr) add_parameter("layer_norm_bias", *norm_->bias());
}

Tensor NormedLinear::forward(const Tensor& x, bool remake_norm) {
  if (!norm_) return ColumnLinear::forward(x);
  if (!remake_norm) return ColumnLinear::forward(norm_->forward(x));
  return ColumnLinear::forward(norm_->forward(x), [this, x = x.detach()] {
    GradMode off(x.runtime(), false);
    return norm_->forward(x);
  });
}

BranchLinear::BranchLinear(int64_t in, int64_t out, const LinearOptions& options,
                           const TensorParallel& tp, const std::optional<NormSpec>& post_norm)
    : RowLinear(in, out, options, tp) {
  if (!post_norm) return;
  post_norm_.emplace(*post_norm);
  add_child("post_layernorm", *post_norm_);
}

Tensor BranchLinear::add_to(const Tensor& residual, const Tensor& x, const Drop& drop,
                            const ForwardContext& context, const Remake& remake) {
  const bool drops = context.training && drop.p > 0;
  if (!post_norm_ && bias() == nullptr && !drops && tp().size() == 1)
    return multiply_onto(residual, x, remake);
  return join(residual, multiply(x, remake), drop, context);
}

Tensor BranchLinear::join(const Tensor& residual, Tensor branch, const Drop& drop,
                          const ForwardContext& context) {
  const RandomSite random = random_site(drop.site, context, tp(), residual.dim(0));
  const double p = context.training ? drop.p : 0.0;
  if (!post_norm_) {
    if (bias() == nullptr) return bias_dropout_add(residual, branch, Tensor(), p, random);
    return bias_dropout_add(residual, branch, bias()->acquire(), p, random);
  }
  if (bias() != nullptr) {  // no known model has both; the bias is added to zero plus the branch
    const Tensor nothing = zeros(branch.shape(), branch.dtype(), branch.device());
    branch = bias_dropout_add(nothing, branch, bias()->acquire(), 0.0, random);
  }
  return bias_dropout_add(residual, post_norm_->forward(branch), Tensor(), p, random);
}

}  // namespace phx
