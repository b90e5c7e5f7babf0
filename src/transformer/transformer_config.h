// The shape of a decoder-only transformer: GPT, Llama, Mistral, Qwen, Gemma and their like. Fields
// carry Megatron's names; what an unset field comes to is said by the methods below, so code that
// builds a model asks head_dim(), query_groups() and so on, never the optional itself.
// Layers are counted from 0 in every method here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/frequency_pattern.h"
#include "phalanx/base/option_traits.h"
#include "phalanx/nn/norm_kind.h"
#include "phalanx/transformer/latent_config.h"
#include "phalanx/transformer/moe_config.h"
#include "phalanx/transformer/window_size.h"

namespace phx {

struct Rule;

enum class PositionEmbedding { learned_absolute, rope, yarn, none };
constexpr auto option_names(PositionEmbedding) {
  return std::array{"learned_absolute", "rope", "yarn", "none"};
}

enum class MlpActivation { gelu, gelu_tanh, squared_relu, swiglu, geglu_tanh };

struct TransformerConfig {
  // Sizes.
  int64_t num_layers = 0;
  int64_t hidden_size = 0;
  std::optional<int64_t> ffn_hidden_size;
  int64_t num_attention_heads = 0;
  bool group_query_attention = false;
  int64_t num_query_groups = 1;
  std::optional<int64_t> kv_channels;
  int64_t seq_length = 0;
  int64_t max_position_embeddings = 0;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> padded_vocab_size;
  int64_t make_vocab_size_divisible_by = 128;
  bool untie_embeddings_and_output_weights = false;

  // Positions.
  PositionEmbedding position_embedding_type = PositionEmbedding::learned_absolute;
  double rotary_base = 10000;
  std::optional<double> rotary_base_local;
  double rotary_percent = 1.0;
  bool rotary_interleaved = false;
  std::optional<double> rotary_seq_len_interpolation_factor;
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8.0;
  double rope_scaling_low_freq_factor = 1.0;
  double rope_scaling_high_freq_factor = 4.0;
  int64_t rope_scaling_original_max_position_embeddings = 8192;
  double rotary_scaling_factor = 1.0;
  std::optional<int64_t> yarn_original_max_position_embeddings;
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
  bool yarn_correction_range_round_to_int = true;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;
  std::optional<FrequencyPattern> no_rope_freq;

  // Norms.
  Normalization normalization = Normalization::LayerNorm;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;
  bool qk_layernorm = false;
  bool qk_layernorm_all_heads = false;
  bool post_layernorms = false;

  // MLP.
  bool swiglu = false;
  bool geglu = false;
  bool squared_relu = false;
  bool openai_gelu = false;
  bool bias_gelu_fusion = true;  // of GELU with a bias: the tanh form, as in Megatron

  // Experts.
  MoeConfig moe;

  // Latent attention.
  LatentConfig latent;

  // Multi-token prediction (models/gpt/token_ahead.h).
  int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;

  // Biases.
  bool add_bias_linear = true;
  bool add_qkv_bias = false;

  // Attention and logits.
  std::optional<WindowSize> window_size;
  std::optional<FrequencyPattern> window_attn_skip_freq;
  std::optional<double> query_scale;
  std::optional<double> attn_logit_softcapping;
  std::optional<double> final_logit_softcapping;
  std::optional<double> embedding_scale;

  // Dropout and initial weights.
  double attention_dropout = 0.1;
  double hidden_dropout = 0.1;
  double init_method_std = 0.02;
  std::optional<double> embedding_init_method_std;

  // What unset fields come to.
  int64_t ffn_size() const;  // f, of one half when gated
  int64_t expert_size() const { return moe.moe_ffn_hidden_size.value_or(ffn_size()); }
  int64_t head_dim() const;  // d, of queries and keys
  int64_t value_dim() const { return latent.any() ? latent.v_head_dim : head_dim(); }
  int64_t query_groups() const;  // key/value heads
  int64_t padded_vocab(int64_t tp = 1) const;
  double embedding_std() const { return embedding_init_method_std.value_or(init_method_std); }
  // Of the layers that write to the residual stream, so that it does not grow with the depth.
  double residual_std() const;
  double softmax_scale() const;  // what q.k is multiplied by
  bool gated() const { return swiglu || geglu; }
  MlpActivation activation() const;
  bool has_linear_bias() const { return add_bias_linear; }
  bool has_qkv_bias() const { return add_bias_linear || add_qkv_bias; }
  bool has_position_table() const {
    return position_embedding_type == PositionEmbedding::learned_absolute;
  }
  // The channels of a head that positions may turn: all, but for latent attention.
  int64_t rotary_head_dim() const { return latent.any() ? latent.qk_pos_emb_head_dim : head_dim(); }
  int64_t rotary_dim() const;  // how many of these are rotated; even
  bool uses_yarn() const;

  // Layers may differ. Those of multi-token prediction have the indices behind the decoder's, and
  // are made as its last layer is.
  int64_t all_layers() const { return num_layers + mtp_num_layers; }
  bool has_experts(int64_t layer) const { return moe.has_experts(pattern_layer(layer)); }
  std::optional<WindowSize> layer_window(int64_t layer) const;  // none: full causal attention
  bool layer_uses_rope(int64_t layer) const;
  double layer_rotary_base(int64_t layer) const;
  // Gemma-3: layers with the local base see short distances only, so no stretching applies to them.
  bool layer_stretches_rope(int64_t layer) const;

  int64_t pattern_layer(int64_t layer) const { return std::min(layer, num_layers - 1); }

  // Writes what unset fields come to, on `tp` tensor-parallel ranks, into the fields: for the
  // record of a run.
  void resolve(int64_t tp = 1);

  template <class Field>
  void each(Field&& field);  // transformer_fields.h, for those who make options of it
};

// Rules between the fields of a config that options were read into; it outlives them.
std::vector<Rule> transformer_rules(const TransformerConfig& config);

}  // namespace phx
