#include "transformer/self_attention.h"

#include <cmath>

#include "core/philox.h"
#include "core/segment.h"
#include "ops/head_norm.h"
#include "ops/rope.h"

namespace phx {

std::vector<RowPiece> qkv_rows(int64_t heads, int64_t groups, int64_t head_dim) {
  const int64_t per_group = heads / groups;  // query heads that share a key
  std::vector<RowPiece> rows;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t global = group * (per_group + 2) * head_dim;
    rows.push_back({global, group * per_group * head_dim, per_group * head_dim});
    rows.push_back({global + per_group * head_dim, (heads + group) * head_dim, head_dim});
    rows.push_back(
        {global + (per_group + 1) * head_dim, (heads + groups + group) * head_dim, head_dim});
  }
  return rows;
}

namespace {

std::optional<NormSpec> post_norm(const TransformerConfig& config) {
  if (!config.post_layernorms) return std::nullopt;
  return norm_spec(config, config.hidden_size);
}

std::string layer_name(int64_t layer) { return "decoder.layers." + std::to_string(layer); }

}  // namespace

SelfAttention::SelfAttention(const TransformerConfig& config, int64_t layer)
    : config_(config),
      layer_(layer),
      n_(config.num_attention_heads),
      g_(config.query_groups()),
      d_(config.head_dim()),
      linear_qkv_(norm_spec(config, config.hidden_size), config.hidden_size, (n_ + 2 * g_) * d_,
                  {.bias = config.has_qkv_bias(),
                   .init = Init::normal(config.init_method_std),
                   .rows = qkv_rows(n_, g_, d_)}),
      linear_proj_(n_ * d_, config.hidden_size,
                   {.bias = config.has_linear_bias(),
                    .init = Init::normal(config.init_method_std /
                                         std::sqrt(2.0 * double(config.num_layers)))},
                   post_norm(config)) {
  add_child("linear_qkv", linear_qkv_);
  if (config.qk_layernorm) {
    PHX_CHECK(config.normalization == Normalization::RMSNorm,
              "--qk-layernorm normalises heads by RMSNorm; it needs --normalization RMSNorm");
    q_norm_.emplace(norm_spec(config, d_));
    k_norm_.emplace(norm_spec(config, d_));
    add_child("q_layernorm", *q_norm_);
    add_child("k_layernorm", *k_norm_);
  }
  add_child("linear_proj", linear_proj_);
}

Tensor SelfAttention::forward(const Tensor& x, const RopeTables& rope,
                              const ForwardContext& context,
                              bool recompute_core) {  // [s, b, h]
  Tensor qkv = linear_qkv_.forward(x);                // [s, b, (n + 2g) d]
  if (q_norm_) {
    const NormOptions options{.eps = config_.norm_epsilon,
                              .zero_centred = config_.apply_layernorm_1p};
    qkv = head_norm(qkv, q_norm_->weight().acquire(), k_norm_->weight().acquire(),
                    {.n = n_, .g = g_, .d = d_}, options);
  }
  if (config_.layer_uses_rope(layer_))
    qkv = rope.apply(std::move(qkv), layer_, context.first_position);

  Tensor o;  // [s, b, n d]
  if (context.cache != nullptr) {
    o = cached(qkv, context);
  } else if (recompute_core) {
    o = recompute(std::span(&qkv, 1), [this, context](std::span<const Tensor> in) {
      return std::vector<Tensor>{core(in[0], context)};
    })[0];
  } else {
    o = core(qkv, context);
  }
  return linear_proj_.add_to(x, o, config_.hidden_dropout,
                             layer_name(layer_) + ".self_attention.linear_proj.dropout", context);
}

AttentionOptions SelfAttention::options(const ForwardContext& context) const {
  const auto window = config_.layer_window(layer_);
  return {.causal = true,
          .scale = config_.softmax_scale(),
          .window_left = window ? int(window->left) : -1,
          .softcap = config_.attn_logit_softcapping.value_or(0.0),
          .dropout = context.training ? config_.attention_dropout : 0.0,
          .random = {.seed = context.seed,
                     .site = site_of(layer_name(layer_) + ".self_attention.core_attention.dropout"),
                     .step = uint64_t(context.step),
                     .first_sample = context.first_sample}};
}

Tensor SelfAttention::core(const Tensor& qkv, const ForwardContext& context) {  // -> [s, b, n d]
  return attention(qkv, {.n = n_, .g = g_, .d = d_}, options(context));
}

Tensor SelfAttention::cached(const Tensor& qkv, const ForwardContext& context) {
  LayerCache& cache = context.cache->layers.at(size_t(layer_));
  const int64_t before = context.cache->length, s = qkv.dim(0), b = qkv.dim(1);
  PHX_CHECK(before + s <= cache.keys.dim(0), "the cache holds ", cache.keys.dim(0), " tokens, not ",
            before + s);
  Tensor new_keys = cache.keys.rows(before, s), new_values = cache.values.rows(before, s);
  copy_columns(qkv, n_ * d_, new_keys);
  copy_columns(qkv, (n_ + g_) * d_, new_values);
  const Tensor keys = cache.keys.rows(0, before + s), values = cache.values.rows(0, before + s);
  Tensor o = empty({s, b, n_ * d_}, qkv.dtype(), qkv.device());
  Tensor lse = empty({b, n_, s}, acc_dtype(qkv.dtype()), qkv.device());
  kernels::attention({.q = heads_of(qkv, d_, 0, n_),
                      .k = heads_of(keys, d_, 0, g_),
                      .v = heads_of(values, d_, 0, g_)},
                     options(context), heads_of(o, d_, 0, n_), lse);
  return o;
}

}  // namespace phx
