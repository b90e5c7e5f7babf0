// How the families of families.cpp name their tensors, beside our names. Tables only: several
// families share most of them.
#pragma once

#include <vector>

#include "phalanx/convert/family.h"

namespace phx::family_tables {

using enum RowLayout;

// What Llama, Mistral, Qwen and Gemma have in common. Rows without a counterpart in a model (an
// untied head, biases, norms of q and k) are for those that have it.
inline const std::vector<TensorRow> kLlamaTensors = {
    {"embedding.word_embeddings.weight", "model.embed_tokens.weight"},
    {"decoder.final_layernorm.weight", "model.norm.weight"},
    {"output_layer.weight", "lm_head.weight"},
};
inline const std::vector<TensorRow> kLlamaLayer = {
    {"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
    {"self_attention.linear_qkv.weight", "self_attn.{q,k,v}_proj.weight", qkv},
    {"self_attention.linear_qkv.bias", "self_attn.{q,k,v}_proj.bias", qkv},
    {"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
    {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"},
    {"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
    {"self_attention.linear_proj.bias", "self_attn.o_proj.bias"},
    {"mlp.linear_fc1.weight", "mlp.{gate,up}_proj.weight", gate_up},
    {"mlp.linear_fc1.bias", "mlp.{gate,up}_proj.bias", gate_up},
    {"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
    {"mlp.linear_fc2.bias", "mlp.down_proj.bias"},
};
inline const std::vector<TensorRow> kOneNorm = {
    {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
};
// Gemma 2 and 3 normalise before and after both branches, so "post_attention" means what it says.
inline const std::vector<TensorRow> kFourNorms = {
    {"self_attention.linear_proj.post_layernorm.weight", "post_attention_layernorm.weight"},
    {"mlp.linear_fc1.layer_norm_weight", "pre_feedforward_layernorm.weight"},
    {"mlp.linear_fc2.post_layernorm.weight", "post_feedforward_layernorm.weight"},
};

// A layer of experts has a norm of its own in front, whose name there is that of a dense layer's.
inline const std::vector<TensorRow> kNormOfExperts = {
    {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
};
inline const std::vector<TensorRow> kQwenExperts = {
    {"mlp.router.weight", "mlp.gate.weight"},
    {"mlp.experts.linear_fc1.weight", "mlp.experts.*.{gate,up}_proj.weight", experts_gate_up},
    {"mlp.experts.linear_fc2.weight", "mlp.experts.*.down_proj.weight", experts},
};
inline const std::vector<TensorRow> kQwenSharedExpert = {
    {"mlp.shared_experts.linear_fc1.weight", "mlp.shared_expert.{gate,up}_proj.weight", gate_up},
    {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_expert.down_proj.weight"},
    {"mlp.shared_experts.gate_weight", "mlp.shared_expert_gate.weight"},
};
inline const std::vector<TensorRow> kMixtralExperts = {
    {"mlp.router.weight", "block_sparse_moe.gate.weight"},
    {"mlp.experts.linear_fc1.weight", "block_sparse_moe.experts.*.{w1,w3}.weight", experts_gate_up},
    {"mlp.experts.linear_fc2.weight", "block_sparse_moe.experts.*.w2.weight", experts},
};

inline const std::vector<TensorRow> kLatentLayer = {
    {"input_layernorm.weight", "input_layernorm.weight"},
    {"self_attention.linear_q_down_proj.weight", "self_attn.q_a_proj.weight"},
    {"self_attention.linear_q_up_proj.layer_norm_weight", "self_attn.q_a_layernorm.weight"},
    {"self_attention.linear_q_up_proj.weight", "self_attn.q_b_proj.weight"},
    {"self_attention.linear_q_proj.weight", "self_attn.q_proj.weight"},
    {"self_attention.linear_kv_down_proj.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"self_attention.linear_kv_up_proj.layer_norm_weight", "self_attn.kv_a_layernorm.weight"},
    {"self_attention.linear_kv_up_proj.weight", "self_attn.kv_b_proj.weight"},
    {"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
    {"mlp.linear_fc1.weight", "mlp.{gate,up}_proj.weight", gate_up},
    {"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
};
inline const std::vector<TensorRow> kDeepSeekSharedExpert = {
    {"mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.{gate,up}_proj.weight", gate_up},
    {"mlp.shared_experts.linear_fc2.weight", "mlp.shared_experts.down_proj.weight"},
};
// fp32 in any model of the library: a step moves it by a small number.
inline const std::vector<TensorRow> kExpertBias = {
    {.ours = "mlp.router.expert_bias", .hf = "mlp.gate.e_score_correction_bias", .own_type = true},
};

inline const std::vector<TensorRow> kDeepSeekAhead = {
    {"enorm.weight", "enorm.weight"},
    {"hnorm.weight", "hnorm.weight"},
    {"eh_proj.weight", "eh_proj.weight"},
    {"final_layernorm.weight", "shared_head.norm.weight"},
};
inline const std::vector<TensorRow> kDeepSeekAheadCopies = {
    {"embedding.word_embeddings.weight", "embed_tokens.weight"},
    {"output_layer.weight", "shared_head.head.weight"},
};

inline const std::vector<StackedRow> kQwenStacked = {
    {"mlp.experts.gate_up_proj", "mlp.experts.*.{gate,up}_proj.weight"},
    {"mlp.experts.down_proj", "mlp.experts.*.down_proj.weight"},
};
inline const std::vector<StackedRow> kMixtralStacked = {
    {"mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"mlp.experts.gate_up_proj", "block_sparse_moe.experts.*.{w1,w3}.weight"},
    {"mlp.experts.down_proj", "block_sparse_moe.experts.*.w2.weight"},
};

inline const std::vector<TensorRow> kGpt2Tensors = {
    {"embedding.word_embeddings.weight", "transformer.wte.weight"},
    {"embedding.position_embeddings.weight", "transformer.wpe.weight"},
    {"decoder.final_layernorm.weight", "transformer.ln_f.weight"},
    {"decoder.final_layernorm.bias", "transformer.ln_f.bias"},
    {"output_layer.weight", "lm_head.weight"},
};
inline const std::vector<TensorRow> kGpt2Layer = {
    {"self_attention.linear_qkv.layer_norm_weight", "ln_1.weight"},
    {"self_attention.linear_qkv.layer_norm_bias", "ln_1.bias"},
    {"self_attention.linear_qkv.weight", "attn.c_attn.weight", one_qkv, true},
    {"self_attention.linear_qkv.bias", "attn.c_attn.bias", one_qkv},
    {"self_attention.linear_proj.weight", "attn.c_proj.weight", same, true},
    {"self_attention.linear_proj.bias", "attn.c_proj.bias"},
    {"mlp.linear_fc1.layer_norm_weight", "ln_2.weight"},
    {"mlp.linear_fc1.layer_norm_bias", "ln_2.bias"},
    {"mlp.linear_fc1.weight", "mlp.c_fc.weight", same, true},
    {"mlp.linear_fc1.bias", "mlp.c_fc.bias"},
    {"mlp.linear_fc2.weight", "mlp.c_proj.weight", same, true},
    {"mlp.linear_fc2.bias", "mlp.c_proj.bias"},
};

// Tables and masks that older versions of the library saved along.
inline const std::vector<const char*> kBuffers = {".rotary_emb.inv_freq"};
inline const std::vector<const char*> kGpt2Buffers = {".attn.bias", ".attn.masked_bias"};

}  // namespace phx::family_tables
