#include "phalanx/transformer/transformer_config.h"

#include <cmath>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"
#include "phalanx/base/option_rules.h"
#include "phalanx/base/option_values.h"
#include "phalanx/kernels/rope_frequencies.h"

namespace phx {

WindowSize WindowSize::parse(const std::string& text) {
  std::string inner = text;
  if (inner.size() >= 2 && inner.front() == '(' && inner.back() == ')') {
    inner = inner.substr(1, inner.size() - 2);
  }
  const size_t comma = inner.find(',');
  PHX_CHECK(comma != std::string::npos, "is not a window: two numbers as in 127,0");
  std::string right = inner.substr(comma + 1);
  right.erase(0, right.find_first_not_of(' '));
  WindowSize window;
  try {
    window = {parse_integer(inner.substr(0, comma)), parse_integer(right)};
  } catch (const Error&) {
    throw_error("is not a window: two numbers as in 127,0");
  }
  PHX_CHECK(window.left >= -1 && window.right >= -1,
            "is not a window: each number is -1 (no limit) or more");
  return window;
}

int64_t TransformerConfig::ffn_size() const {
  if (ffn_hidden_size) return *ffn_hidden_size;
  if (!gated()) return 4 * hidden_size;
  // Two thirds, so that the gated MLP has as many weights as the plain one; in doubles as Megatron
  // computes it, because the rounding is part of the shape.
  const double width = static_cast<double>(4 * hidden_size) * 2 / 3 / 64;
  return static_cast<int64_t>(width) * 64;
}

int64_t TransformerConfig::head_dim() const {
  if (latent.any()) return latent.query_channels();
  if (kv_channels) return *kv_channels;
  PHX_CHECK(num_attention_heads > 0, "--num-attention-heads ", num_attention_heads,
            " should be positive");
  return hidden_size / num_attention_heads;
}

int64_t TransformerConfig::query_groups() const {
  return group_query_attention && !latent.any() ? num_query_groups : num_attention_heads;
}

int64_t TransformerConfig::padded_vocab(int64_t tp) const {
  if (padded_vocab_size) return *padded_vocab_size;
  PHX_CHECK(vocab_size.has_value(), "the vocabulary's size is not known: set --vocab-size");
  return round_up(*vocab_size, make_vocab_size_divisible_by * tp);
}

double TransformerConfig::residual_std() const {
  return init_method_std / std::sqrt(2.0 * double(num_layers));
}

double TransformerConfig::softmax_scale() const {
  const double scale = 1.0 / std::sqrt(query_scale.value_or(static_cast<double>(head_dim())));
  if (!latent.any() || !uses_yarn()) return scale;
  // YaRN sharpens latent attention here instead of by cosines and sines: most of a head's channels
  // are not rotated.
  const double magnitude = kernels::yarn_magnitude(rotary_scaling_factor, mscale_all_dim);
  return scale * magnitude * magnitude;
}

MlpActivation TransformerConfig::activation() const {
  if (swiglu) return MlpActivation::swiglu;
  if (geglu) return MlpActivation::geglu_tanh;
  if (squared_relu) return MlpActivation::squared_relu;
  // Megatron's fused kernel of bias and GELU, its default, computes the tanh form.
  const bool tanh = openai_gelu || (bias_gelu_fusion && add_bias_linear);
  return tanh ? MlpActivation::gelu_tanh : MlpActivation::gelu;
}

int64_t TransformerConfig::rotary_dim() const {
  const int64_t dim = static_cast<int64_t>(static_cast<double>(rotary_head_dim()) * rotary_percent);
  return dim / 2 * 2;
}

bool TransformerConfig::uses_yarn() const {
  if (position_embedding_type == PositionEmbedding::yarn) return true;
  return latent.any() && position_embedding_type == PositionEmbedding::rope &&
         latent.rope_type != RopeType::rope && rotary_scaling_factor != 1;
}

std::optional<WindowSize> TransformerConfig::layer_window(int64_t layer) const {
  layer = pattern_layer(layer);
  if (!window_size || !window_attn_skip_freq) return window_size;
  const FrequencyPattern& freq = *window_attn_skip_freq;
  const bool windowed = freq.is_list() ? freq.list.at(static_cast<size_t>(layer)) != 0
                                       : (layer + 1) % freq.every != 0;
  return windowed ? window_size : std::nullopt;
}

bool TransformerConfig::layer_uses_rope(int64_t layer) const {
  if (position_embedding_type != PositionEmbedding::rope &&
      position_embedding_type != PositionEmbedding::yarn) {
    return false;
  }
  if (!no_rope_freq) return true;
  layer = pattern_layer(layer);
  const bool skipped = no_rope_freq->is_list()
                           ? no_rope_freq->list.at(static_cast<size_t>(layer)) != 0
                           : (layer + 1) % no_rope_freq->every == 0;
  return !skipped;
}

double TransformerConfig::layer_rotary_base(int64_t layer) const {
  return rotary_base_local && layer_window(layer) ? *rotary_base_local : rotary_base;
}

bool TransformerConfig::layer_stretches_rope(int64_t layer) const {
  return !(rotary_base_local && layer_window(layer));
}

void TransformerConfig::resolve(int64_t tp) {
  ffn_hidden_size = ffn_size();
  if (!latent.any()) kv_channels = head_dim();
  num_query_groups = query_groups();
  embedding_init_method_std = embedding_std();
  if (vocab_size || padded_vocab_size) padded_vocab_size = padded_vocab(tp);
}

}  // namespace phx
