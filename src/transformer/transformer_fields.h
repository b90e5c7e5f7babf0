// The fields of TransformerConfig as options. Included where options are made of them.
#pragma once

#include "phalanx/transformer/transformer_config.h"

namespace phx {

template <class Field>
void TransformerConfig::each(Field&& field) {
  // Sizes that no machine holds are typing mistakes; the bounds also keep products within 64 bits.
  const InRange layers{1, 100000}, width{1, 1 << 20}, positions{1, 2147483647},
      vocabulary{1, 2147483647};
  field("num-layers", num_layers, "transformer layers", layers, Required{});
  field("hidden-size", hidden_size, "width h of the residual stream", width, Required{});
  field("ffn-hidden-size", ffn_hidden_size, "inner width of the MLP; if it is gated, of each half",
        width, DefaultIs{"4h; gated: 8h/3 rounded down to a multiple of 64"});
  field("num-attention-heads", num_attention_heads, "query heads", width, Required{});
  field("group-query-attention", group_query_attention, "let query heads share key/value heads");
  field("num-query-groups", num_query_groups, "key/value heads, with --group-query-attention",
        width);
  field("kv-channels", kv_channels, "head size d", width, DefaultIs{"h / heads"});
  field("seq-length", seq_length, "tokens in a training sequence", positions, Required{},
        Alias{"encoder-seq-length"});
  field("max-position-embeddings", max_position_embeddings,
        "largest number of positions; at least --seq-length", positions, Required{});
  field("vocab-size", vocab_size, "tokens of the vocabulary, before padding", vocabulary,
        DefaultIs{"the tokenizer's"});
  field("padded-vocab-size", padded_vocab_size, "rows of the embedding, padding included",
        vocabulary, DefaultIs{"--vocab-size rounded up"});
  field("make-vocab-size-divisible-by", make_vocab_size_divisible_by,
        "pad the vocabulary to a multiple of this times the tensor-parallel size", width);
  field("untie-embeddings-and-output-weights", untie_embeddings_and_output_weights,
        "give the output layer its own weights");

  field("position-embedding-type", position_embedding_type, "kind of position embedding",
        Means{"use-rotary-position-embeddings", "rope"},
        Refuses{{{"mrope", "multimodal positions are not in this build yet"},
                 {"relative", "T5's relative bias is not in this build"}}});
  field("rotary-base", rotary_base, "base of the rotary frequencies", Positive{});
  field("rotary-base-local", rotary_base_local,
        "base of the rotary frequencies in windowed layers (Gemma-3)", Positive{}, Own{},
        DefaultIs{"--rotary-base"});
  field("rotary-percent", rotary_percent, "fraction of the head that is rotated",
        InRange{0.0, 1.0});
  field("rotary-interleaved", rotary_interleaved, "rotate even/odd pairs instead of halves");
  field("rotary-seq-len-interpolation-factor", rotary_seq_len_interpolation_factor,
        "divide positions by this", Positive{});
  field("use-rope-scaling", use_rope_scaling, "scale low rotary frequencies as Llama 3.1 does");
  field("rope-scaling-factor", rope_scaling_factor, "factor of --use-rope-scaling", Positive{});
  field("rope-scaling-low-freq-factor", rope_scaling_low_freq_factor,
        "frequencies with fewer rotations than this in the original context are scaled in full",
        Positive{}, Own{});
  field("rope-scaling-high-freq-factor", rope_scaling_high_freq_factor,
        "frequencies with more rotations than this in the original context are not scaled",
        Positive{}, Own{});
  field("rope-scaling-original-max-position-embeddings",
        rope_scaling_original_max_position_embeddings, "context length before the scaling",
        Positive{}, Own{});
  field("rotary-scaling-factor", rotary_scaling_factor,
        "YaRN: factor by which the context is extended", AtLeast{1.0},
        Alias{"yarn-rotary-scaling-factor"});
  field("yarn-original-max-position-embeddings", yarn_original_max_position_embeddings,
        "YaRN: context length before it is extended", Positive{},
        Alias{"original-max-position-embeddings"});
  field("yarn-beta-fast", yarn_beta_fast,
        "YaRN: frequencies with more rotations than this in the original context are not scaled",
        Positive{}, Alias{"beta-fast"});
  field(
      "yarn-beta-slow", yarn_beta_slow,
      "YaRN: frequencies with fewer rotations than this in the original context are scaled in full",
      Positive{}, Alias{"beta-slow"});
  field("yarn-correction-range-round-to-int", yarn_correction_range_round_to_int,
        "YaRN: do not round the ends of the ramp between the two to whole channel pairs");
  field("mscale", mscale, "YaRN: weight of the attention magnitude", NotNegative{},
        Alias{"yarn-mscale"});
  field("mscale-all-dim", mscale_all_dim, "YaRN: the same over all channels", NotNegative{},
        Alias{"yarn-mscale-all-dim"});
  field("no-rope-freq", no_rope_freq,
        "layers without RoPE: every N-th, or a list with 1 = without");

  field("normalization", normalization, "kind of norm");
  field("norm-epsilon", norm_epsilon, "added to the variance", Positive{},
        Alias{"layernorm-epsilon"});
  field("apply-layernorm-1p", apply_layernorm_1p, "store the norm's weight minus one");
  field("qk-layernorm", qk_layernorm, "normalise every head of q and k");
  field("qk-layernorm-all-heads", qk_layernorm_all_heads,
        "with --qk-layernorm: over the channels of all heads together (OLMoE)", Own{});
  field("post-layernorms", post_layernorms,
        "also normalise the outputs of attention and MLP before they are added to the residual "
        "stream (Gemma)",
        Own{});

  field("swiglu", swiglu, "MLP gated by SiLU");
  field("geglu", geglu, "MLP gated by the tanh form of GELU (Gemma)", Own{});
  field("squared-relu", squared_relu, "MLP with ReLU squared");
  field("openai-gelu", openai_gelu, "MLP with the tanh form of GELU");
  field("bias-gelu-fusion", bias_gelu_fusion,
        "use the exact GELU (erf) also in layers with a bias; the default there is the tanh form, "
        "as in Megatron's fused kernel");

  moe.each(field);
  latent.each(field);

  field("mtp-num-layers", mtp_num_layers,
        "predict so many tokens more, each by a layer of its own behind the decoder (multi-token "
        "prediction, DeepSeek-V3); 0: none",
        InRange{0, 64});
  field("mtp-loss-scaling-factor", mtp_loss_scaling_factor,
        "weight of the mean of these predictions' losses beside the next token's loss",
        NotNegative{});

  field("add-bias-linear", add_bias_linear, "linear layers without biases",
        OffSwitch{"disable-bias-linear"});
  field("add-qkv-bias", add_qkv_bias, "bias on the QKV projection even without the others");

  field("window-size", window_size, "sliding window of attention: keys to the left and right");
  field("window-attn-skip-freq", window_attn_skip_freq,
        "layers with full attention: every N-th, or a list with 1 = window");
  field("query-scale", query_scale,
        "divide attention scores by the root of this, not of the head size (Gemma)", Positive{},
        Own{}, DefaultIs{"head size"});
  field("attn-logit-softcapping", attn_logit_softcapping,
        "squash attention scores into this range by tanh (Gemma-2)", Positive{}, Own{});
  field("final-logit-softcapping", final_logit_softcapping,
        "squash the logits into this range by tanh (Gemma-2)", Positive{}, Own{});
  field("embedding-scale", embedding_scale, "factor on embeddings (Gemma: the root of h)",
        Positive{}, Own{});

  field("attention-dropout", attention_dropout, "dropout on attention weights", FractionBelowOne{});
  field("hidden-dropout", hidden_dropout,
        "dropout on the outputs that are added to the residual stream", FractionBelowOne{});
  field("init-method-std", init_method_std, "standard deviation of the initial weights",
        Positive{});
  field("embedding-init-method-std", embedding_init_method_std, "the same for the embedding",
        Positive{}, DefaultIs{"--init-method-std"});
}

}  // namespace phx
