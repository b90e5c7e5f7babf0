// Multi-head latent attention (DeepSeek-V2): queries, keys and values come out of narrow latent
// vectors, and positions have channels of their own, which all key heads share. Fields carry
// Megatron's names.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "phalanx/base/option_traits.h"

namespace phx {

struct Rule;

enum class RopeType { rope, yarn };
constexpr auto option_names(RopeType) { return std::array{"rope", "yarn"}; }

struct LatentConfig {
  bool multi_latent_attention = false;
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 32;
  int64_t qk_head_dim = 128;
  int64_t qk_pos_emb_head_dim = 64;
  int64_t v_head_dim = 128;
  std::optional<RopeType> rope_type;

  bool any() const { return multi_latent_attention; }
  int64_t query_channels() const { return qk_head_dim + qk_pos_emb_head_dim; }  // of a head

  template <class Field>
  void each(Field&& field) {
    const InRange width{1, 1 << 20}, channels{1, 256};
    field("multi-latent-attention", multi_latent_attention,
          "attention whose queries, keys and values come out of latent vectors (DeepSeek)");
    field("q-lora-rank", q_lora_rank, "width of the latent vector of queries", width,
          DefaultIs{"none: queries come from the hidden state"});
    field("kv-lora-rank", kv_lora_rank, "width of the latent vector of keys and values", width);
    field("qk-head-dim", qk_head_dim, "channels of a query or key head without positions",
          channels);
    field("qk-pos-emb-head-dim", qk_pos_emb_head_dim,
          "channels of a query or key head with rotary positions", channels);
    field("v-head-dim", v_head_dim, "channels of a value head", channels);
    field("rope-type", rope_type,
          "rotation of latent attention: with yarn --rotary-scaling-factor stretches it",
          DefaultIs{"yarn"});
  }
};

std::vector<Rule> latent_rules();

}  // namespace phx
