// Small models of every family, in fp64 and with an optimizer that decays, clips and moves far
// enough within a step that a wrong gradient shows in the weights. The number of layers, dropout
// and tied or untied embeddings are the layout's to say.
#pragma once

#include "phalanx/train/session.h"

namespace phx::testing {

inline void small_run(RunConfig& config) {
  TransformerConfig& model = config.model;
  model.hidden_size = 32;
  model.num_attention_heads = 4;
  model.ffn_hidden_size = 40;
  model.seq_length = 8;
  model.max_position_embeddings = 8;
  model.vocab_size = 53;  // the last tensor-parallel rank has padding
  model.make_vocab_size_divisible_by = 8;
  model.init_method_std = 0.1;
  config.train.fp64 = true;
  config.optim.lr = 1e-3;
  config.optim.weight_decay = 0.1;
  config.optim.clip_grad = 0.1;
  // Where a gradient is zero but for its rounding (keys' biases: softmax does not see a shift), the
  // update should be, too: Adam's usual 1e-8 is near enough to the rounding to make it 1e-11.
  config.optim.adam_eps = 1e-6;
  config.data.mock_data = true;
}

inline void rms_norm_without_biases(RunConfig& config) {
  config.model.normalization = Normalization::RMSNorm;
  config.model.add_bias_linear = false;
  config.model.position_embedding_type = PositionEmbedding::rope;
}

inline void gpt2_like(RunConfig& config) { small_run(config); }

inline void llama_like(RunConfig& config) {
  small_run(config);
  rms_norm_without_biases(config);
  config.model.swiglu = true;
  config.model.group_query_attention = true;
  config.model.num_query_groups = 2;
}

// Post-norms, zero-centred gammas, heads that are not h / n, soft-capping, windows on every other
// layer, scaled embeddings and queries.
inline void gemma2_like(RunConfig& config) {
  small_run(config);
  rms_norm_without_biases(config);
  TransformerConfig& model = config.model;
  model.geglu = true;
  model.apply_layernorm_1p = true;
  model.post_layernorms = true;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.kv_channels = 12;
  model.query_scale = 10;
  model.attn_logit_softcapping = 5;
  model.final_logit_softcapping = 6;
  model.embedding_scale = 5.5;
  model.embedding_init_method_std = 0.2;
  model.window_size = WindowSize{2, 0};
  model.window_attn_skip_freq = FrequencyPattern::every_nth(2);
}

// Head norms (which decay here), biases on QKV alone, several key groups a rank, another learning
// rate for the vocabulary's matrices.
inline void qwen3_like(RunConfig& config) {
  small_run(config);
  rms_norm_without_biases(config);
  config.model.swiglu = true;
  config.model.num_attention_heads = 8;
  config.model.group_query_attention = true;
  config.model.num_query_groups = 4;
  config.model.kv_channels = 6;
  config.model.qk_layernorm = true;
  config.model.add_qkv_bias = true;
  config.optim.apply_wd_to_qk_layernorm = true;
  config.optim.decoupled_lr = 2e-3;
}

// One key head for all; a vocabulary of which the last of four ranks has nothing but padding; some
// layers without rotation.
inline void mqa_like(RunConfig& config) {
  small_run(config);
  TransformerConfig& model = config.model;
  model.apply_layernorm_1p = true;
  model.position_embedding_type = PositionEmbedding::rope;
  model.rotary_percent = 0.5;
  model.no_rope_freq = FrequencyPattern::every_nth(3);
  model.squared_relu = true;
  model.group_query_attention = true;
  model.num_query_groups = 1;
  model.vocab_size = 41;
  model.make_vocab_size_divisible_by = 16;
}

// DeepSeek-V3's latent attention; head sizes that all differ.
inline void latent_attention(TransformerConfig& model) {
  model.group_query_attention = false;
  model.qk_layernorm = true;
  model.latent = {.multi_latent_attention = true,
                  .q_lora_rank = 14,
                  .kv_lora_rank = 12,
                  .qk_head_dim = 6,
                  .qk_pos_emb_head_dim = 4,
                  .v_head_dim = 8,
                  .rope_type = {}};
}

// Positions beyond the trained ones, by YaRN.
inline void stretched_by_yarn(TransformerConfig& model) {
  model.rotary_scaling_factor = 4;
  model.yarn_original_max_position_embeddings = 4;
  model.mscale_all_dim = 0.7;
}

}  // namespace phx::testing
