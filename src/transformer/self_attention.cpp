#include "phalanx/transformer/self_attention.h"

#include <algorithm>

#include "phalanx/core/philox.h"
#include "phalanx/core/segment.h"
#include "phalanx/ops/head_norm.h"
#include "phalanx/ops/rope.h"
#include "phalanx/ops/wide_norm.h"
#include "phalanx/parallel/context/context_attention.h"
#include "phalanx/parallel/tensor/key_groups.h"

namespace phx {

HeadCut::HeadCut(const TransformerConfig& config, const TensorParallel& tp)
    : n(tp.part(config.num_attention_heads)),
      g(std::max<int64_t>(tp.part(config.query_groups()), 1)),
      d(config.head_dim()),
      first_head(tp.first(config.num_attention_heads)),
      key_sharers(std::max<int64_t>(tp.size() / config.query_groups(), 1)) {
  PHX_CHECK(config.num_attention_heads % tp.size() == 0, config.num_attention_heads,
            " attention heads cannot be cut over ", tp.size(), " ranks");
  PHX_CHECK(g * tp.size() == config.query_groups() * key_sharers && d % key_sharers == 0, "the ",
            config.query_groups(), " query groups (heads of ", d, ") cannot be cut over ",
            tp.size(), " ranks");
}

RowCut qkv_rows(const TransformerConfig& config, const TensorParallel& tp) {
  const HeadCut cut(config, tp);
  const int64_t d = cut.d, groups = config.query_groups();
  const int64_t per_group = config.num_attention_heads / groups;  // query heads that share a key
  const int64_t group_rows = (per_group + 2) * d;
  const int64_t slice = d / cut.key_sharers;  // rows of a key head that this rank has
  RowCut rows{.global_rows = groups * group_rows,
              .local_rows = cut.n * d + 2 * cut.g * slice,
              .pieces = {}};
  const int64_t first_group = cut.first_head / per_group;
  const int64_t heads_here = std::min(cut.n, per_group);  // of each of its groups
  for (int64_t i = 0; i < cut.g; ++i) {
    const int64_t global = (first_group + i) * group_rows;
    const int64_t head_in_group = cut.first_head % per_group;
    const int64_t sliced = (tp.rank() % cut.key_sharers) * slice;
    rows.pieces.push_back({global + head_in_group * d, i * heads_here * d, heads_here * d});
    rows.pieces.push_back({global + per_group * d + sliced, cut.n * d + i * slice, slice});
    rows.pieces.push_back(
        {global + (per_group + 1) * d + sliced, cut.n * d + (cut.g + i) * slice, slice});
  }
  return rows;
}

namespace {

// The channels of all query heads, one after the other: a rank has those of its own heads.
RowCut query_channels(const TransformerConfig& config, const TensorParallel& tp) {
  const HeadCut cut(config, tp);
  return {.global_rows = config.num_attention_heads * cut.d,
          .local_rows = cut.n * cut.d,
          .pieces = {{cut.first_head * cut.d, 0, cut.n * cut.d}}};
}

// Of all key heads, as the rank has them before the sharers of a group put theirs together.
RowCut key_channels(const TransformerConfig& config, const TensorParallel& tp) {
  const HeadCut cut(config, tp);
  const int64_t per_group = config.num_attention_heads / config.query_groups();
  const int64_t slice = cut.d / cut.key_sharers;
  const int64_t first = cut.first_head / per_group * cut.d + tp.rank() % cut.key_sharers * slice;
  return {.global_rows = config.query_groups() * cut.d,
          .local_rows = cut.g * slice,
          .pieces = {{first, 0, cut.g * slice}}};  // slices: g is 1
}

}  // namespace

AllHeadsNorm::AllHeadsNorm(const RowCut& channels, bool zero_centred)
    : weight_({.global_shape = {channels.global_rows},
               .local_shape = {channels.local_rows},
               .pieces = pieces_of(channels.pieces, 1),
               .init = Init::constant(zero_centred ? 0 : 1),
               .axes = cut_over_tp()}) {
  add_parameter("weight", weight_);
}

SelfAttention::SelfAttention(const LayerContext& layer)
    : config_(layer.config),
      layer_(layer.layer),
      heads_(config_, layer.ranks.tp),
      key_sharers_(layer.ranks.key_sharers),
      tp_group_(layer.ranks.tp.group),
      ranks_(layer.ranks.context),
      dropout_site_("decoder.layers." + std::to_string(layer_) + ".self_attention."),
      linear_qkv_(norm_spec(config_, config_.hidden_size, axes_in_sequence(layer.ranks.tp)),
                  config_.hidden_size, qkv_rows(config_, layer.ranks.tp),
                  {.bias = config_.has_qkv_bias(), .init = Init::normal(config_.init_method_std)},
                  layer.ranks.tp),
      linear_proj_(
          config_.num_attention_heads * heads_.d, config_.hidden_size,
          {.bias = config_.has_linear_bias(), .init = Init::normal(config_.residual_std())},
          layer.ranks.tp, post_norm_spec(config_, layer.ranks.tp)) {
  PHX_CHECK(heads_.key_sharers == 1 ||
                (key_sharers_ != nullptr && key_sharers_->size() == heads_.key_sharers),
            heads_.key_sharers, " ranks share a key group, and need a group of their own");
  add_child("linear_qkv", linear_qkv_);
  if (config_.qk_layernorm) {
    PHX_CHECK(config_.normalization == Normalization::RMSNorm,
              "--qk-layernorm normalises heads by RMSNorm; it needs --normalization RMSNorm");
    if (config_.qk_layernorm_all_heads) {
      const bool zero_centred = config_.apply_layernorm_1p;
      all_q_norm_.emplace(query_channels(config_, layer.ranks.tp), zero_centred);
      all_k_norm_.emplace(key_channels(config_, layer.ranks.tp), zero_centred);
      add_child("q_layernorm", *all_q_norm_);
      add_child("k_layernorm", *all_k_norm_);
    } else {
      q_norm_.emplace(norm_spec(config_, heads_.d, partial_over_tp()));
      k_norm_.emplace(norm_spec(config_, heads_.d, partial_over_tp()));
      add_child("q_layernorm", *q_norm_);
      add_child("k_layernorm", *k_norm_);
    }
  }
  add_child("linear_proj", linear_proj_);
}

Tensor SelfAttention::add_to(const Tensor& residual, const Tensor& x,
                             const LayerCall& call) {  // [s/tp, b, h] both
  const ForwardContext& context = call.context;
  Tensor qkv = linear_qkv_.forward(x, call.policy.norms);  // [s, b, (n + 2g) d / tp]
  if (all_q_norm_) qkv = all_heads_norm(qkv);
  if (heads_.key_sharers > 1)
    qkv = gather_key_group(qkv, heads_.n * heads_.d, heads_.d, *key_sharers_);
  if (q_norm_) {
    const NormOptions options{.eps = config_.norm_epsilon,
                              .zero_centred = config_.apply_layernorm_1p};
    qkv = head_norm(qkv, q_norm_->weight().acquire(), k_norm_->weight().acquire(),
                    {.n = heads_.n, .g = heads_.g, .d = heads_.d}, options);
  }
  if (config_.layer_uses_rope(layer_))
    qkv = call.rope.apply(std::move(qkv), layer_,
                          {.offset = context.first_position, .positions = context.positions});

  Tensor o;  // [s, b, n d / tp]
  if (context.cache != nullptr) {
    o = cached(qkv, context);
  } else if (call.policy.core_attention) {
    o = recompute(std::span(&qkv, 1), [this, context](std::span<const Tensor> in) {
      return std::vector<Tensor>{core(in[0], context)};
    })[0];
  } else {
    o = core(qkv, context);
  }
  return linear_proj_.add_to(
      residual, o, {config_.hidden_dropout, dropout_site_ + "linear_proj.dropout"}, context);
}

// Before a key group is put together, so that every channel is on one rank and counts once.
Tensor SelfAttention::all_heads_norm(const Tensor& qkv) {  // [s, b, (n + 2g) d / tp]
  const WideParts parts{.q = heads_.n * heads_.d,
                        .k = heads_.g * heads_.d / heads_.key_sharers,
                        .all_q = config_.num_attention_heads * heads_.d,
                        .all_k = config_.query_groups() * heads_.d};
  return wide_norm(qkv, all_q_norm_->weight().acquire(), all_k_norm_->weight().acquire(), parts,
                   {.eps = config_.norm_epsilon, .zero_centred = config_.apply_layernorm_1p},
                   tp_group_);
}

AttentionOptions attention_options(const TransformerConfig& config, int64_t layer,
                                   int64_t first_head, const ForwardContext& context) {
  const auto window = config.layer_window(layer);
  PHX_CHECK(context.causal || !window, "a window of attention looks back only: layer ", layer,
            " has one, but tokens are to see those behind them");
  const std::string site =
      "decoder.layers." + std::to_string(layer) + ".self_attention.core_attention.dropout";
  return {.causal = context.causal,
          .scale = config.softmax_scale(),
          .window_left = window ? int(window->left) : -1,
          .softcap = config.attn_logit_softcapping.value_or(0.0),
          .dropout = context.training ? config.attention_dropout : 0.0,
          .random = {.seed = context.seed,
                     .site = site_of(site),
                     .step = uint64_t(context.step),
                     .samples = context.samples,
                     .first_head = first_head}};
}

CachedKeys add_to_cache(LayerCache& cache, int64_t before, const Tensor& kv, int64_t first) {
  const int64_t s = kv.dim(0);
  PHX_CHECK(before + s <= cache.keys.dim(0), "the cache holds ", cache.keys.dim(0), " tokens, not ",
            before + s);
  Tensor new_keys = cache.keys.rows(before, s), new_values = cache.values.rows(before, s);
  copy_columns(kv, first, new_keys);
  copy_columns(kv, first + cache.keys.dim(-1), new_values);
  return {.keys = cache.keys.rows(0, before + s), .values = cache.values.rows(0, before + s)};
}

Tensor SelfAttention::core(const Tensor& qkv, const ForwardContext& context) {  // -> [s, b, n d]
  ranks_.check(context.cut);
  return context_attention(qkv, {.n = heads_.n, .g = heads_.g, .d = heads_.d},
                           attention_options(config_, layer_, heads_.first_head, context),
                           context.packed, ranks_, layer_, context.kept_attention.get());
}

Tensor SelfAttention::cached(const Tensor& qkv, const ForwardContext& context) {
  const int64_t n = heads_.n, g = heads_.g, d = heads_.d;
  const int64_t s = qkv.dim(0), b = qkv.dim(1);
  const auto [keys, values] =
      add_to_cache(context.cache->layers.at(size_t(layer_)), context.cache->length, qkv, n * d);
  Tensor o = empty({s, b, n * d}, qkv.dtype(), qkv.device());
  Tensor lse = empty({b, n, s}, acc_dtype(qkv.dtype()), qkv.device());
  kernels::attention(
      {.q = heads_of(qkv, d, 0, n), .k = heads_of(keys, d, 0, g), .v = heads_of(values, d, 0, g)},
      attention_options(config_, layer_, heads_.first_head, context), heads_of(o, d, 0, n), lse);
  return o;
}

}  // namespace phx
