// The models of the GPU benchmarks, and their model FLOPs utilization.
#pragma once

#include <algorithm>

#include "phalanx/train/session.h"

namespace phx {

struct Case {
  const char* name;
  int64_t layers, hidden, heads, groups, head_dim, ffn, vocab, seq, micro_batch;
  bool tied;
  int64_t experts = 0, topk = 0;  // ffn is then the width of one expert
  bool gemma2 = false;
};

inline constexpr Case kCases[] = {
    {"gpt2s", 12, 768, 12, 12, 64, 3072, 50304, 1024, 64, true},
    {"llama1b", 16, 2048, 32, 8, 64, 8192, 128256, 4096, 4, true},
    {"llama8b_8L", 8, 4096, 32, 8, 128, 14336, 128256, 8192, 2, false},
    // Six of the 48 layers of Qwen3-30B-A3B.
    {"qwen3moe_6L", 6, 2048, 32, 4, 128, 768, 151936, 4096, 4, false, 128, 8},
    {"gemma2_4L", 4, 3584, 16, 8, 256, 14336, 8192, 4096, 2, true, 0, 0, /*gemma2=*/true},
};

inline RunConfig config_of(const Case& of) {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = of.layers;
  model.hidden_size = of.hidden;
  model.num_attention_heads = of.heads;
  model.group_query_attention = of.groups != of.heads;
  model.num_query_groups = of.groups;
  model.kv_channels = of.head_dim;
  model.ffn_hidden_size = of.ffn;
  model.vocab_size = of.vocab;
  model.seq_length = model.max_position_embeddings = of.seq;
  model.untie_embeddings_and_output_weights = !of.tied;
  model.position_embedding_type = PositionEmbedding::rope;
  model.rotary_base = 500000;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  if (of.experts > 0) {
    model.qk_layernorm = true;
    model.moe.num_experts = of.experts;
    model.moe.moe_router_topk = of.topk;
    model.moe.moe_ffn_hidden_size = of.ffn;
    model.moe.moe_aux_loss_coeff = {1e-3};
  }
  if (of.gemma2) {
    model.swiglu = false;
    model.geglu = model.post_layernorms = true;
    model.query_scale = 256;
    model.window_size = WindowSize{4095, 0};
    model.window_attn_skip_freq = FrequencyPattern::every_nth(2);
  }
  config.train.micro_batch_size = of.micro_batch;
  config.train.bf16 = true;
  config.train.train_iters = 1000;
  config.optim.lr = 1e-4;
  config.data.mock_data = true;
  return config;
}

inline double mfu(const Case& of, double tokens_per_second) {
  const double attention = double(of.hidden) * (of.heads + 2 * of.groups) * of.head_dim +
                           double(of.heads) * of.head_dim * of.hidden;
  const double mlp = 3.0 * of.hidden * of.ffn * double(std::max<int64_t>(of.topk, 1)) +
                     double(of.hidden) * of.experts;  // with the router
  const double weights = of.layers * (attention + mlp) + double(of.vocab) * of.hidden;
  const double per_token = 6 * weights + 6.0 * of.layers * of.seq * of.heads * of.head_dim;
  return per_token * tokens_per_second / 989.5e12;
}

}  // namespace phx
