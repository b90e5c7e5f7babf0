#include <array>

#include "phalanx/convert/family_tensors.h"

namespace phx {
namespace {

using namespace family_tables;

template <class T>
std::vector<T> operator+(std::vector<T> a, const std::vector<T>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// ---- config.json --------------------------------------------------------------------------------

const std::vector<KeyRow> kSizes = {
    {"num_hidden_layers", "num_layers"},
    {"hidden_size", "hidden_size"},
    {"intermediate_size", "ffn_hidden_size"},
    {"num_attention_heads", "num_attention_heads"},
    {"vocab_size", "vocab_size"},
    {"max_position_embeddings", "max_position_embeddings"},
    {"rms_norm_eps", "norm_epsilon", "1e-6"},
    {"initializer_range", "init_method_std", "0.02"},
    {"attention_dropout", "attention_dropout", "0.0"},
};
const std::vector<KeyRow> kUntied = {
    {"tie_word_embeddings", "untie_embeddings_and_output_weights", "false", true}};
const std::vector<KeyRow> kTied = {
    {"tie_word_embeddings", "untie_embeddings_and_output_weights", "true", true}};
const std::vector<KeyRow> kSoftCaps = {
    {.hf = "query_pre_attn_scalar", .ours = "query_scale", .absent = "256", .whole = true},
    {"attn_logit_softcapping", "attn_logit_softcapping", "null"},
    {"final_logit_softcapping", "final_logit_softcapping", "null"},
};
const std::vector<KeyRow> kSoftCapsOfGemma2 = {
    {.hf = "query_pre_attn_scalar", .ours = "query_scale", .absent = "256", .whole = true},
    {"attn_logit_softcapping", "attn_logit_softcapping", "50.0"},
    {"final_logit_softcapping", "final_logit_softcapping", "30.0"},
};

// Mixtral's layers all have experts, and "intermediate_size" is their width. As --ffn-hidden-size
// it is idle, but a width has to be there. The later row is the one that is written.
const std::vector<KeyRow> kMixtralKeys = {
    {"intermediate_size", "moe_ffn_hidden_size"},
    {"num_local_experts", "num_experts", "8"},
    {"num_experts_per_tok", "moe_router_topk", "2"},
    {"rms_norm_eps", "norm_epsilon", "1e-5"},
};
// Weights that are divided by their sum are those of a softmax over the chosen experts alone.
const std::vector<KeyRow> kNormTopk = {{"norm_topk_prob", "moe_router_pre_softmax", "false", true}};
const std::vector<KeyRow> kQwen2Experts = {
    {"num_experts", "num_experts", "60"},
    {"num_experts_per_tok", "moe_router_topk", "4"},
    {"moe_intermediate_size", "moe_ffn_hidden_size", "1408"},
    {"shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "5632"},
    {"qkv_bias", "add_qkv_bias", "true"},
};
const std::vector<KeyRow> kQwen3Experts = {
    {.hf = "num_experts", .ours = "num_experts", .absent = "128", .also = "num_local_experts"},
    {"num_experts_per_tok", "moe_router_topk", "8"},
    {"moe_intermediate_size", "moe_ffn_hidden_size", "768"},
};

// As Mixtral's.
const std::vector<KeyRow> kOlmoeKeys = {
    {"intermediate_size", "moe_ffn_hidden_size"},
    {.hf = "num_experts", .ours = "num_experts", .absent = "64", .also = "num_local_experts"},
    {"num_experts_per_tok", "moe_router_topk", "8"},
    {"rms_norm_eps", "norm_epsilon", "1e-5"},
};

const std::vector<KeyRow> kLatentKeys = {
    {"q_lora_rank", "q_lora_rank", "1536"},     {"kv_lora_rank", "kv_lora_rank", "512"},
    {"qk_nope_head_dim", "qk_head_dim", "128"}, {"qk_rope_head_dim", "qk_pos_emb_head_dim", "64"},
    {"v_head_dim", "v_head_dim", "128"},
};
const std::vector<KeyRow> kDeepSeekV2Experts = {
    {.hf = "n_routed_experts", .ours = "num_experts", .absent = "64", .also = "num_experts"},
    {"num_experts_per_tok", "moe_router_topk"},
    {"moe_intermediate_size", "moe_ffn_hidden_size", "1407"},
};
const std::vector<KeyRow> kDeepSeekV3Experts = {
    {.hf = "n_routed_experts", .ours = "num_experts", .absent = "256", .also = "num_local_experts"},
    {"num_experts_per_tok", "moe_router_topk", "8"},
    {"moe_intermediate_size", "moe_ffn_hidden_size", "2048"},
};

const std::vector<KeyRow> kDeepSeekV3Ahead = {
    {"num_nextn_predict_layers", "mtp_num_layers", "0"},
};

const std::vector<FixedRow> kRope = {{"position_embedding_type", "\"rope\""},
                                     {"normalization", "\"RMSNorm\""},
                                     {"hidden_dropout", "0.0"}};
const std::vector<FixedRow> kSwiglu = kRope + std::vector<FixedRow>{{"swiglu", "true"}};
const std::vector<FixedRow> kNoBias = {{"add_bias_linear", "false"}};
const std::vector<FixedRow> kGeglu =
    kRope + kNoBias + std::vector<FixedRow>{{"geglu", "true"}, {"apply_layernorm_1p", "true"}};
const std::vector<FixedRow> kQkNorm = {{"qk_layernorm", "true"}};
const std::vector<FixedRow> kAllHeadsNorm = {{"qk_layernorm_all_heads", "true"}};
const std::vector<FixedRow> kPostNorms = {{"post_layernorms", "true"}};

const std::vector<FixedRow> kLatent = {{"multi_latent_attention", "true"}};

const std::vector<OnlyRow> kSilu = {{"hidden_act", {"\"silu\""}, "\"silu\""}};
const std::vector<OnlyRow> kPlainAttention = {{"attention_bias", {"false"}, "false"}};
const std::vector<OnlyRow> kNoWindow = {{"use_sliding_window", {"false"}, "false"}};
const std::vector<OnlyRow> kNoJitter = {{"router_jitter_noise", {"0.0"}, "0.0"}};
const std::vector<OnlyRow> kNoClipping = {{"clip_qkv", {"null"}, "null"}};
// The norms of latent vectors have this epsilon, whatever the others have.
const std::vector<OnlyRow> kLatentNorms = {{"rms_norm_eps", {"1e-6"}, "1e-6"},
                                           {"moe_layer_freq", {"1"}, "1"}};
const std::vector<OnlyRow> kDeepSeekV2Router = {{"scoring_func", {"\"softmax\""}, "\"softmax\""},
                                                {"norm_topk_prob", {"false"}, "false"},
                                                {"mlp_bias", {"false"}, "false"}};
const std::vector<OnlyRow> kDeepSeekV3Router = {{"scoring_func", {"\"sigmoid\""}, "\"sigmoid\""},
                                                {"topk_method", {"\"noaux_tc\""}, "\"noaux_tc\""},
                                                {"norm_topk_prob", {"true"}, "true"},
                                                {"rope_interleave", {"true"}, "true"}};
const std::vector<OnlyRow> kCausal = {{"use_bidirectional_attention", {"false", "null"}, "false"}};
// The first releases of Gemma said "gelu" and meant its tanh form; the library reads it so.
const std::vector<OnlyRow> kGemmaAct = {
    {"hidden_act", {"\"gelu_pytorch_tanh\"", "\"gelu\"", "null"}, "\"gelu_pytorch_tanh\""},
    {"hidden_activation", {"\"gelu_pytorch_tanh\"", "null"}, "null"}};
const std::vector<OnlyRow> kGemma2Act = {
    {"hidden_activation", {"\"gelu_pytorch_tanh\""}, "\"gelu_pytorch_tanh\""}};

const Family kGpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .layers = "transformer.h.",
    .tensors = kGpt2Tensors,
    .layer_tensors = kGpt2Layer,
    .ignored = kGpt2Buffers,
    .keys = {{"n_layer", "num_layers"},
             {"n_embd", "hidden_size"},
             {"n_inner", "ffn_hidden_size", "null"},
             {"n_head", "num_attention_heads"},
             {"vocab_size", "vocab_size"},
             {"n_positions", "max_position_embeddings"},
             {"layer_norm_epsilon", "norm_epsilon", "1e-5"},
             {"initializer_range", "init_method_std", "0.02"},
             {"attn_pdrop", "attention_dropout", "0.1"},
             {"resid_pdrop", "hidden_dropout", "0.1"},
             {"tie_word_embeddings", "untie_embeddings_and_output_weights", "true", true}},
    .only = {{"activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\""}, "\"gelu_new\""},
             {"scale_attn_weights", {"true"}, "true"},
             {"scale_attn_by_inverse_layer_idx", {"false"}, "false"},
             {"add_cross_attention", {"false"}, "false"}},
    .fixed = {{"position_embedding_type", "\"learned_absolute\""},
              {"normalization", "\"LayerNorm\""},
              {"openai_gelu", "true"}},
    .rope = RopeStyle::none,
    .grouped_heads = false,
    .free_head_size = false,
};

// Most families are Llama with a few words changed.
Family llama_with(const char* name, const char* architecture, void (*change)(Family&)) {
  Family family = {
      .name = name,
      .architecture = architecture,
      .prefix = "model.",
      .layers = "model.layers.",
      .tensors = kLlamaTensors,
      .layer_tensors = kLlamaLayer + kOneNorm,
      .ignored = kBuffers,
      .keys = kSizes + kUntied,
      .only = kSilu,
      .fixed = kSwiglu + kNoBias,
  };
  change(family);
  return family;
}

const Family kLlama = llama_with("llama", "LlamaForCausalLM", [](Family& family) {
  family.fixed = kSwiglu;
  family.bias_keys = true;
});

const Family kMistral = llama_with("mistral", "MistralForCausalLM",
                                   [](Family& family) { family.window = WindowStyle::all_layers; });

const Family kQwen2 = llama_with("qwen2", "Qwen2ForCausalLM", [](Family& family) {
  family.fixed.push_back({"add_qkv_bias", "true"});
  family.window = WindowStyle::from_layer;
  family.free_head_size = false;
});

const Family kQwen3 = llama_with("qwen3", "Qwen3ForCausalLM", [](Family& family) {
  family.only = kSilu + kPlainAttention;
  family.fixed = kSwiglu + kNoBias + kQkNorm;
  family.window = WindowStyle::from_layer;
});

const Family kMixtral = llama_with("mixtral", "MixtralForCausalLM", [](Family& family) {
  family.layer_tensors = kLlamaLayer + kNormOfExperts + kMixtralExperts;
  family.stacked = kMixtralStacked;
  family.keys = kSizes + kUntied + kMixtralKeys;
  family.only = kSilu + kNoJitter;
  family.fixed.push_back({"moe_router_pre_softmax", "false"});
  family.rope_theta = 1'000'000;
  family.window = WindowStyle::all_layers;
  family.sliding_window = 0;
  family.experts = ExpertStyle::all_layers;
});

const Family kQwen2Moe = llama_with("qwen2_moe", "Qwen2MoeForCausalLM", [](Family& family) {
  family.layer_tensors = kLlamaLayer + kOneNorm + kNormOfExperts + kQwenExperts + kQwenSharedExpert;
  family.stacked = kQwenStacked;
  family.keys = kSizes + kUntied + kQwen2Experts + kNormTopk;
  family.only = kSilu + kNoWindow;
  family.fixed.push_back({"moe_shared_expert_gate", "true"});
  family.free_head_size = false;
  family.experts = ExpertStyle::sparse_step;
});

const Family kQwen3Moe = llama_with("qwen3_moe", "Qwen3MoeForCausalLM", [](Family& family) {
  family.layer_tensors = kLlamaLayer + kOneNorm + kNormOfExperts + kQwenExperts;
  family.stacked = kQwenStacked;
  family.keys = kSizes + kUntied + kQwen3Experts + kNormTopk;
  family.only = kSilu + kPlainAttention + kNoWindow;
  family.fixed = kSwiglu + kNoBias + kQkNorm;
  family.experts = ExpertStyle::sparse_step;
});

const Family kOlmoe = llama_with("olmoe", "OlmoeForCausalLM", [](Family& family) {
  family.layer_tensors = kLlamaLayer + kNormOfExperts + kQwenExperts;
  family.stacked = kQwenStacked;
  family.keys = kSizes + kUntied + kOlmoeKeys + kNormTopk;
  family.only = kSilu + kPlainAttention + kNoClipping;
  family.fixed = kSwiglu + kNoBias + kQkNorm + kAllHeadsNorm;
  family.free_head_size = false;
  family.experts = ExpertStyle::all_layers;
  family.balance = 0.01;
});

void change_to_deepseek(Family& family) {
  family.layer_tensors =
      kLatentLayer + kOneNorm + kNormOfExperts + kQwenExperts + kDeepSeekSharedExpert;
  family.stacked = kQwenStacked;
  family.fixed = kSwiglu + kNoBias + kQkNorm + kLatent;
  family.free_head_size = false;
  family.experts = ExpertStyle::after_dense;
  family.latent = true;
}

const Family kDeepSeekV2 = llama_with("deepseek_v2", "DeepseekV2ForCausalLM", [](Family& family) {
  change_to_deepseek(family);
  family.keys = kSizes + kUntied + kLatentKeys + kDeepSeekV2Experts;
  family.only = kSilu + kPlainAttention + kLatentNorms + kDeepSeekV2Router;
  family.fixed.push_back({"moe_router_pre_softmax", "true"});
});

const Family kDeepSeekV3 = llama_with("deepseek_v3", "DeepseekV3ForCausalLM", [](Family& family) {
  change_to_deepseek(family);
  family.layer_tensors = family.layer_tensors + kExpertBias;
  family.ahead_tensors = kDeepSeekAhead;
  family.ahead_copies = kDeepSeekAheadCopies;
  family.keys = kSizes + kUntied + kLatentKeys + kDeepSeekV3Experts + kDeepSeekV3Ahead;
  family.only = kSilu + kPlainAttention + kLatentNorms + kDeepSeekV3Router;
  family.fixed.push_back({"moe_router_score_function", "\"sigmoid\""});
  family.fixed.push_back({"moe_router_enable_expert_bias", "true"});
});

void change_to_gemma(Family& family) {
  family.keys = kSizes + kTied;
  family.only = kGemmaAct + kPlainAttention + kCausal;
  family.fixed = kGeglu;
  family.scaled_embedding = true;
}

void change_to_gemma2(Family& family) {
  change_to_gemma(family);
  family.layer_tensors = kLlamaLayer + kFourNorms;
  family.keys = kSizes + kTied + kSoftCapsOfGemma2;
  family.only = kGemma2Act + kPlainAttention + kCausal;
  family.fixed = kGeglu + kPostNorms;
  family.window = WindowStyle::periodic;
  family.window_period = 2;
}

const Family kGemma = llama_with("gemma", "GemmaForCausalLM", change_to_gemma);
const Family kGemma2 = llama_with("gemma2", "Gemma2ForCausalLM", change_to_gemma2);
const Family kGemma3 = llama_with("gemma3_text", "Gemma3ForCausalLM", [](Family& family) {
  change_to_gemma2(family);
  family.keys = kSizes + kTied + kSoftCaps;
  family.fixed = kGeglu + kPostNorms + kQkNorm;
  family.rope = RopeStyle::local_and_global;
  family.rope_theta = 1'000'000;
  family.window_period = 6;
});

}  // namespace

// In the order in which an export without a family's name tries them: the plainest first.
std::span<const Family> families() {
  static const std::array list = {kLlama,    kMistral,  kQwen2,  kQwen3,      kMixtral,
                                  kQwen3Moe, kQwen2Moe, kOlmoe,  kDeepSeekV2, kDeepSeekV3,
                                  kGemma,    kGemma2,   kGemma3, kGpt2};
  return list;
}

}  // namespace phx
