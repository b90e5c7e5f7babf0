#include "phalanx/transformer/latent_attention.h"

#include "phalanx/core/segment.h"
#include "phalanx/ops/attention.h"
#include "phalanx/ops/columns.h"
#include "phalanx/parallel/context/context_attention.h"
#include "phalanx/transformer/self_attention.h"

namespace phx {

namespace {

ParameterSpec whole_on_every_rank(int64_t out, int64_t in, Init init, const TensorParallel& tp) {
  ParameterSpec spec = whole({out, in}, init);
  spec.axes = axes_in_sequence(tp);
  return spec;
}

LatentHeads heads_on_rank(const TransformerConfig& config, const TensorParallel& tp) {
  PHX_CHECK(config.num_attention_heads % tp.size() == 0, config.num_attention_heads,
            " attention heads cannot be cut over ", tp.size(), " ranks");
  return {.n = tp.part(config.num_attention_heads),
          .plain = config.latent.qk_head_dim,
          .turned = config.latent.qk_pos_emb_head_dim,
          .value = config.latent.v_head_dim};
}

std::optional<NormSpec> latent_norm(const TransformerConfig& config, int64_t width,
                                    const TensorParallel& tp) {
  if (!config.qk_layernorm) return std::nullopt;
  return norm_spec(config, width, axes_in_sequence(tp));
}

// All heads' channels, cut by heads.
RowCut cut_heads(const TransformerConfig& config, int64_t channels, const TensorParallel& tp) {
  return cut_rows({config.num_attention_heads * channels}, tp);
}

}  // namespace

LatentAttention::DownProjection::DownProjection(int64_t in, int64_t out, Init init,
                                                const TensorParallel& tp)
    : weight_(whole_on_every_rank(out, in, init, tp)) {
  add_parameter("weight", weight_);
}

Tensor LatentAttention::DownProjection::forward(const Tensor& x, const Remake& remake) {
  return column_linear(x, weight_.acquire(), Tensor(), TensorParallel{}, remake);
}

LatentAttention::LatentAttention(const LayerContext& layer)
    : config_(layer.config),
      layer_(layer.layer),
      tp_(layer.ranks.tp),
      ranks_(layer.ranks.context),
      heads_(heads_on_rank(config_, tp_)),
      dropout_site_("decoder.layers." + std::to_string(layer_) + ".self_attention."),
      norm_(norm_spec(config_, config_.hidden_size, axes_in_sequence(tp_))),
      kv_down_(config_.hidden_size, config_.latent.kv_lora_rank + heads_.turned,
               Init::normal(config_.init_method_std), tp_),
      kv_up_(latent_norm(config_, config_.latent.kv_lora_rank, tp_), config_.latent.kv_lora_rank,
             cut_heads(config_, heads_.plain + heads_.value, tp_),
             {.bias = false, .init = Init::normal(config_.init_method_std)}, tp_),
      linear_proj_(
          config_.num_attention_heads * heads_.value, config_.hidden_size,
          {.bias = config_.has_linear_bias(), .init = Init::normal(config_.residual_std())}, tp_,
          post_norm_spec(config_, tp_)) {
  const Init init = Init::normal(config_.init_method_std);
  const RowCut queries = cut_heads(config_, heads_.key(), tp_);
  add_child("input_layernorm", norm_);
  add_child("self_attention", attention_);
  if (const auto rank = config_.latent.q_lora_rank) {
    q_down_.emplace(config_.hidden_size, *rank, init, tp_);
    q_up_.emplace(latent_norm(config_, *rank, tp_), *rank, queries,
                  LinearOptions{.bias = false, .init = init}, tp_);
    attention_.add_child("linear_q_down_proj", *q_down_);
    attention_.add_child("linear_q_up_proj", *q_up_);
  } else {
    q_proj_.emplace(config_.hidden_size, queries, LinearOptions{.bias = false, .init = init}, tp_);
    attention_.add_child("linear_q_proj", *q_proj_);
  }
  attention_.add_child("linear_kv_down_proj", kv_down_);
  attention_.add_child("linear_kv_up_proj", kv_up_);
  attention_.add_child("linear_proj", linear_proj_);
}

Tensor LatentAttention::add_to(const Tensor& residual, const Tensor& x,
                               const LayerCall& call) {  // [s/tp, b, h] both
  Remake remake;
  if (call.policy.norms)
    remake = [this, x = x.detach()] {
      GradMode off(x.runtime(), false);
      return norm_.forward(x);
    };
  const Tensor normed = norm_.forward(x);                     // [s/tp, b, h]
  const Tensor kv_latent = kv_down_.forward(normed, remake);  // [s/tp, b, rkv + dr]
  const Tensor q_source =
      q_down_ ? q_down_->forward(normed, remake) : normed;  // [s/tp, b, rq or h]

  Tensor o;  // [s, b, n dv / tp]
  if (call.policy.up_projections && call.context.cache == nullptr) {
    const Tensor in[] = {q_source, kv_latent};
    o = recompute(in, [this, &rope = call.rope,
                       context = call.context](std::span<const Tensor> kept) {
      return std::vector<Tensor>{attend(kept[0], kept[1], {rope, context, RecomputePolicy{}}, {})};
    })[0];
  } else {
    o = attend(q_source, kv_latent, call, q_down_ ? Remake{} : remake);
  }
  return linear_proj_.add_to(
      residual, o, {config_.hidden_dropout, dropout_site_ + "linear_proj.dropout"}, call.context);
}

Tensor LatentAttention::attend(const Tensor& q_source, const Tensor& kv_latent,
                               const LayerCall& call, const Remake& remake) {
  const ForwardContext& context = call.context;
  const RopePositions at{.offset = context.first_position, .positions = context.positions};
  Tensor q = q_up_ ? q_up_->forward(q_source, call.policy.norms)
                   : q_proj_->forward(q_source, remake);  // [s, b, n (dn + dr) / tp]
  q = call.rope.turn(std::move(q), layer_,
                     {.n = heads_.n, .d = heads_.key(), .first_channel = heads_.plain}, at);

  const auto [latent, own] = split_columns(kv_latent, config_.latent.kv_lora_rank);
  // Every rank's heads use the channels with positions: their gradient is a sum over the ranks.
  const Tensor shared = call.rope.turned(enter_region(own, tp_), layer_,
                                         {.n = 1, .d = heads_.turned}, at);  // [s, b, dr]
  const Tensor up = kv_up_.forward(latent, call.policy.norms);  // [s, b, n (dn + dv) / tp]
  const Tensor kv = latent_keys(up, shared, heads_);            // [s, b, n (dn + dr + dv) / tp]

  if (context.cache != nullptr) return cached(q, kv, context);
  if (!call.policy.core_attention) return core(q, kv, context);
  const Tensor in[] = {q, kv};
  return recompute(in, [this, context](std::span<const Tensor> kept) {
    return std::vector<Tensor>{core(kept[0], kept[1], context)};
  })[0];
}

Tensor LatentAttention::core(const Tensor& q, const Tensor& kv, const ForwardContext& context) {
  ranks_.check(context.cut);
  return context_attention(
      q, kv, {.n = heads_.n, .g = heads_.n, .d = heads_.key(), .dv = heads_.value},
      attention_options(config_, layer_, tp_.first(config_.num_attention_heads), context),
      context.packed, ranks_, layer_, context.kept_attention.get());
}

Tensor LatentAttention::cached(const Tensor& q, const Tensor& kv, const ForwardContext& context) {
  const int64_t n = heads_.n, d = heads_.key(), dv = heads_.value;
  const CachedKeys all =
      add_to_cache(context.cache->layers.at(size_t(layer_)), context.cache->length, kv, 0);
  Tensor o = empty({q.dim(0), q.dim(1), n * dv}, q.dtype(), q.device());
  Tensor lse = empty({q.dim(1), n, q.dim(0)}, acc_dtype(q.dtype()), q.device());
  kernels::attention(
      {.q = heads_of(q, d, 0, n),
       .k = heads_of(all.keys, d, 0, n),
       .v = heads_of(all.values, dv, 0, n)},
      attention_options(config_, layer_, tp_.first(config_.num_attention_heads), context),
      heads_of(o, dv, 0, n), lse);
  return o;
}

}  // namespace phx
