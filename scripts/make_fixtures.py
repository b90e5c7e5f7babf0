#!/usr/bin/env python3
"""Makes tests/data/oracle/*.safetensors: what PyTorch and transformers say tiny models compute.

    python3 -m venv .deps/oracle
    .deps/oracle/bin/pip install torch==2.11.0 transformers==5.22.2 safetensors==0.8.0 numpy==2.4.6
    .deps/oracle/bin/python scripts/make_fixtures.py            # all of them
    .deps/oracle/bin/python scripts/make_fixtures.py llama3 ops # some of them
    .deps/oracle/bin/python scripts/check_fixtures.py           # are they what they claim to be?

The models are the transformers library's own classes, with random weights from a fixed seed, on one
CPU thread. Weights, gradients and flags are written in our names and layouts. Everything is
computed twice: in fp32, as a user of PyTorch would see it, and in fp64, as the tighter oracle.
Names and meaning of what is stored: tests/data/oracle/README.md. Nothing here runs in CI: the files
are kept.
"""

import argparse
import contextlib
import dataclasses
import pathlib

import torch
import torch.nn.functional as F
import transformers as tf

import fixture_file
import fixture_ops

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/oracle"
BATCH, SEQ, STEPS, IGNORED = 2, 24, 50, -100
# What AdamW below does, as flags. Decay is on parameters of two dimensions, embeddings included.
OPTIMIZER_FLAGS = (
    "--optimizer adam --lr 1e-3 --lr-decay-style constant --adam-beta1 0.9 --adam-beta2 0.95 "
    f"--adam-eps 1e-8 --weight-decay 0.1 --clip-grad 1.0 --train-iters {STEPS}"
)


@dataclasses.dataclass
class Family:
    model: type  # a class of transformers
    config: object
    flags: str  # beyond what common_flags() derives from the config
    zero_centred: bool = False  # norms are stored as gamma - 1
    qk_gain: float = 1.0  # > 1 makes attention scores large enough for soft-capping to bend them
    train: bool = False


def families():
    rope = lambda theta, **more: {"rope_type": "default", "rope_theta": theta, **more}
    small = dict(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=64, attention_dropout=0.0,
        pad_token_id=None, bos_token_id=None, eos_token_id=None,
    )
    llama = "--normalization RMSNorm --swiglu --disable-bias-linear --position-embedding-type rope"
    gemma = (
        "--normalization RMSNorm --apply-layernorm-1p --geglu --disable-bias-linear "
        f"--position-embedding-type rope --embedding-scale {32**0.5!r}"
    )
    window = dict(sliding_window=8)  # a token sees itself and the 7 before it
    latent = dict(num_key_value_heads=4, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                  v_head_dim=10)
    latent_flags = ("--multi-latent-attention --qk-layernorm --kv-lora-rank 16 --qk-head-dim 8 "
                    "--qk-pos-emb-head-dim 4 --v-head-dim 10")
    yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=32,
                beta_slow=1, mscale=1.0, mscale_all_dim=0.7)
    yarn_flags = ("--rotary-scaling-factor 4 --yarn-original-max-position-embeddings 16 "
                  "--mscale 1.0 --mscale-all-dim 0.7")
    return {
        "gpt2": Family(
            tf.GPT2LMHeadModel,
            tf.GPT2Config(
                n_layer=2, n_embd=32, n_head=4, n_inner=80, n_positions=40, vocab_size=96,
                activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                bos_token_id=None, eos_token_id=None,
            ),
            "--normalization LayerNorm --openai-gelu --position-embedding-type learned_absolute",
            train=True,
        ),
        "llama3": Family(
            tf.LlamaForCausalLM,
            tf.LlamaConfig(
                **small, head_dim=8, vocab_size=97, rms_norm_eps=1e-5, tie_word_embeddings=False,
                rope_parameters=dict(
                    rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0, original_max_position_embeddings=8192,
                ),
            ),
            f"{llama} --rotary-base 500000 --use-rope-scaling --rope-scaling-factor 8",
            train=True,
        ),
        "qwen3": Family(
            tf.Qwen3ForCausalLM,
            tf.Qwen3Config(
                **small, head_dim=16, vocab_size=104, rms_norm_eps=1e-6, tie_word_embeddings=True,
                rope_parameters=rope(1000000.0),
            ),
            f"{llama} --rotary-base 1000000 --qk-layernorm",
            train=True,
        ),
        "gemma2": Family(
            tf.Gemma2ForCausalLM,
            tf.Gemma2Config(
                **small, **window, head_dim=16, vocab_size=101, rms_norm_eps=1e-6,
                query_pre_attn_scalar=12, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                layer_types=["sliding_attention", "full_attention"], rope_parameters=rope(10000.0),
            ),
            f"{gemma} --rotary-base 10000 --post-layernorms --query-scale 12 --window-size 7,0 "
            "--window-attn-skip-freq [1,0] --attn-logit-softcapping 50 "
            "--final-logit-softcapping 30",
            zero_centred=True, qk_gain=2.0, train=True,
        ),
        "mistral": Family(
            tf.MistralForCausalLM,
            tf.MistralConfig(
                **small, **window, head_dim=8, vocab_size=96, rms_norm_eps=1e-5,
                tie_word_embeddings=False, rope_parameters=rope(10000.0),
            ),
            f"{llama} --rotary-base 10000 --window-size 7,0",
        ),
        "qwen2": Family(
            tf.Qwen2ForCausalLM,
            tf.Qwen2Config(
                **small, vocab_size=112, rms_norm_eps=1e-6, tie_word_embeddings=True,
                rope_parameters=rope(1000000.0),
            ),
            f"{llama} --rotary-base 1000000 --add-qkv-bias",
        ),
        "gemma1": Family(
            tf.GemmaForCausalLM,
            tf.GemmaConfig(
                **{**small, "num_key_value_heads": 1}, head_dim=16, vocab_size=96,
                hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-6, rope_parameters=rope(10000.0),
            ),
            f"{gemma} --rotary-base 10000",
            zero_centred=True,
        ),
        "gemma3": Family(
            tf.Gemma3ForCausalLM,
            tf.Gemma3TextConfig(
                **{**small, "num_hidden_layers": 3, "intermediate_size": 40}, **window,
                head_dim=8, vocab_size=96, rms_norm_eps=1e-6, query_pre_attn_scalar=12,
                layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                rope_parameters=dict(
                    sliding_attention=rope(10000.0), full_attention=rope(1000000.0)
                ),
            ),
            f"{gemma} --rotary-base 1000000 --rotary-base-local 10000 --qk-layernorm "
            "--post-layernorms --query-scale 12 --window-size 7,0 --window-attn-skip-freq [1,1,0]",
            zero_centred=True,
        ),
        "mixtral": Family(
            tf.MixtralForCausalLM,
            tf.MixtralConfig(
                **{**small, "intermediate_size": 24}, head_dim=8, vocab_size=96, rms_norm_eps=1e-5,
                tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2,
                rope_parameters=rope(1000000.0),
            ),
            f"{llama} --rotary-base 1000000 --num-experts 4 --moe-router-topk 2",
            train=True,
        ),
        "qwen2_moe": Family(
            tf.Qwen2MoeForCausalLM,
            tf.Qwen2MoeConfig(
                **{**small, "intermediate_size": 40}, vocab_size=96, rms_norm_eps=1e-6,
                tie_word_embeddings=True, num_experts=6, num_experts_per_tok=3,
                moe_intermediate_size=16, shared_expert_intermediate_size=24, mlp_only_layers=[0],
                rope_parameters=rope(1000000.0),
            ),
            f"{llama} --rotary-base 1000000 --add-qkv-bias --num-experts 6 --moe-router-topk 3 "
            "--moe-ffn-hidden-size 16 --moe-layer-freq [0,1] --moe-router-pre-softmax "
            "--moe-shared-expert-intermediate-size 24 --moe-shared-expert-gate",
            train=True,
        ),
        "olmoe": Family(
            tf.OlmoeForCausalLM,
            tf.OlmoeConfig(
                **{**small, "intermediate_size": 16}, vocab_size=96, rms_norm_eps=1e-5,
                tie_word_embeddings=False, num_experts=6, num_experts_per_tok=3,
                rope_parameters=rope(10000.0),
            ),
            f"{llama} --rotary-base 10000 --qk-layernorm --qk-layernorm-all-heads "
            "--num-experts 6 --moe-router-topk 3 --moe-router-pre-softmax",
            train=True,
        ),
        "mla": Family(  # DeepSeek-V3 without experts
            tf.DeepseekV3ForCausalLM,
            tf.DeepseekV3Config(
                **{**small, **latent}, q_lora_rank=20, first_k_dense_replace=2, vocab_size=96,
                rms_norm_eps=1e-6, tie_word_embeddings=False,
                rope_parameters=rope(10000.0, **yarn),
            ),
            f"{llama} --rotary-base 10000 {latent_flags} --q-lora-rank 20 {yarn_flags}",
            train=True,
        ),
        "mla_lite": Family(  # DeepSeek-V2-Lite without experts: no latent vector of queries
            tf.DeepseekV2ForCausalLM,
            tf.DeepseekV2Config(
                **{**small, **latent}, q_lora_rank=None, first_k_dense_replace=2, vocab_size=96,
                rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=rope(10000.0),
            ),
            f"{llama} --rotary-base 10000 {latent_flags}",
        ),
        "deepseek_v3": Family(
            tf.DeepseekV3ForCausalLM,
            tf.DeepseekV3Config(
                **{**small, **latent}, q_lora_rank=20, first_k_dense_replace=1, vocab_size=96,
                rms_norm_eps=1e-6, tie_word_embeddings=False, n_routed_experts=8,
                num_experts_per_tok=4, n_group=4, topk_group=2, n_shared_experts=2,
                moe_intermediate_size=12, routed_scaling_factor=2.5,
                rope_parameters=rope(10000.0, **yarn),
            ),
            f"{llama} --rotary-base 10000 {latent_flags} --q-lora-rank 20 {yarn_flags} "
            "--num-experts 8 --moe-router-topk 4 --moe-router-score-function sigmoid "
            "--moe-router-num-groups 4 --moe-router-group-topk 2 --moe-layer-freq [0,1] "
            "--moe-router-topk-scaling-factor 2.5 --moe-ffn-hidden-size 12 "
            "--moe-shared-expert-intermediate-size 24",
            train=True,
        ),
        "qwen3_moe": Family(
            tf.Qwen3MoeForCausalLM,
            tf.Qwen3MoeConfig(
                **{**small, "intermediate_size": 40}, head_dim=12, vocab_size=96, rms_norm_eps=1e-6,
                tie_word_embeddings=False, num_experts=6, num_experts_per_tok=3,
                moe_intermediate_size=16, norm_topk_prob=True, mlp_only_layers=[],
                rope_parameters=rope(1000000.0),
            ),
            f"{llama} --rotary-base 1000000 --qk-layernorm --num-experts 6 --moe-router-topk 3 "
            "--moe-ffn-hidden-size 16",
            train=True,
        ),
    }


def common_flags(c):
    """The flags that every family's config has under some name. No vocabulary padding."""
    gpt2, latent = isinstance(c, tf.GPT2Config), hasattr(c, "kv_lora_rank")
    heads = c.num_attention_heads
    groups = heads if gpt2 else c.num_key_value_heads
    flags = [
        f"--num-layers {c.num_hidden_layers} --hidden-size {c.hidden_size}",
        f"--ffn-hidden-size {c.n_inner if gpt2 else c.intermediate_size}",
        f"--num-attention-heads {heads}" + ("" if latent else f" --kv-channels {head_dim(c)}"),
        f"--seq-length {SEQ} --max-position-embeddings {c.max_position_embeddings}",
        f"--norm-epsilon {c.layer_norm_epsilon if gpt2 else c.rms_norm_eps:g}",
        f"--vocab-size {c.vocab_size} --make-vocab-size-divisible-by 1",
        f"--micro-batch-size {BATCH} --global-batch-size {BATCH}",
        "--attention-dropout 0 --hidden-dropout 0",
    ]
    if groups != heads:
        flags.append(f"--group-query-attention --num-query-groups {groups}")
    if not c.tie_word_embeddings:
        flags.append("--untie-embeddings-and-output-weights")
    return " ".join(flags)


def head_dim(c):
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


@contextlib.contextmanager
def computing_in(dtype):
    """Models built and run inside compute in `dtype` throughout.

    transformers casts norms, softmax and RoPE to torch.float32 by name, also in an fp64 model. So
    for fp64 that name has to mean float64 for a while; check_fixtures.py shows that it worked.
    """
    float32, method = torch.float32, torch.Tensor.float
    torch.set_default_dtype(dtype)
    if dtype == torch.float64:
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32 = torch.float = float32
        torch.Tensor.float = method
        torch.set_default_dtype(float32)


def random_weights(family, seed):
    """HF name -> fp32 values: matrices keep a signal's size, norms and biases are off 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, p in build(family).named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1 and name.endswith("weight"):
            weights[name] = (0.0 if family.zero_centred else 1.0) + 0.2 * noise
        elif p.dim() == 1:
            weights[name] = 0.2 * noise
        elif any(word in name for word in ("embed", "wte", "wpe", "lm_head")):
            weights[name] = 0.4 * noise
        else:
            gain = family.qk_gain if "q_proj" in name or "k_proj" in name else 1.0
            weights[name] = gain * noise / family.config.hidden_size**0.5
    return weights


def build(family, weights=None):
    family.config._attn_implementation = "eager"  # the only one that applies soft-capping
    family.config._experts_implementation = "eager"  # the only one for fp64
    model = family.model(family.config).train()
    if weights:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(weights[name])
    return model


def batches(count, vocab, seed):
    """tokens, labels [count, b, s]: labels are the next tokens, about one in seven ignored.

    Three tokens in four follow a fixed rule, so that there is something to learn.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (count, BATCH, SEQ + 1)
    text = torch.randint(vocab, shape, generator=generator)
    follows = torch.rand(shape, generator=generator) < 0.75
    for i in range(1, SEQ + 1):
        next_token = (5 * text[..., i - 1] + 3) % vocab
        text[..., i] = torch.where(follows[..., i], next_token, text[..., i])
    tokens, labels = text[..., :-1].clone(), text[..., 1:].clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.15] = IGNORED
    return tokens, labels


def loss_of(model, tokens, labels):
    """Logits [b, s, v] and the mean loss over the labels that are not ignored."""
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def train(model, tokens, labels):
    """Loss and gradient norm before clipping of each step: losses [steps], grad_norms [steps]."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
    )
    losses, norms = [], []
    for x, y in zip(tokens, labels):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)[1]
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), torch.stack(norms)


def pack_qkv(q, k, v, groups):
    """Rows group by group: the queries of the group, its key, its value. Weights and biases."""
    parts = [t.reshape(groups, -1, *t.shape[1:]) for t in (q, k, v)]
    return torch.cat(parts, dim=1).flatten(0, 1)


def to_ours(c, hf):
    """HF name -> tensor becomes our name -> tensor; linear, so it serves gradients as well."""
    return gpt2_to_ours(c, hf) if isinstance(c, tf.GPT2Config) else llama_to_ours(c, hf)


def gpt2_to_ours(c, hf):
    ours = {
        "embedding.word_embeddings.weight": hf["transformer.wte.weight"],
        "embedding.position_embeddings.weight": hf["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        ours[f"decoder.final_layernorm.{kind}"] = hf[f"transformer.ln_f.{kind}"]
        for i in range(c.num_hidden_layers):
            layer = {n.split(".", 3)[3]: t for n, t in hf.items() if f".h.{i}." in n}
            to = f"decoder.layers.{i}."
            linear = lambda name: layer[f"{name}.{kind}"].t()  # Conv1D keeps [in, out]
            q, k, v = linear("attn.c_attn").chunk(3)
            ours[f"{to}self_attention.linear_qkv.{kind}"] = pack_qkv(q, k, v, c.num_attention_heads)
            ours[f"{to}self_attention.linear_proj.{kind}"] = linear("attn.c_proj")
            ours[f"{to}mlp.linear_fc1.{kind}"] = linear("mlp.c_fc")
            ours[f"{to}mlp.linear_fc2.{kind}"] = linear("mlp.c_proj")
            ours[f"{to}self_attention.linear_qkv.layer_norm_{kind}"] = layer[f"ln_1.{kind}"]
            ours[f"{to}mlp.linear_fc1.layer_norm_{kind}"] = layer[f"ln_2.{kind}"]
    return ours


def llama_to_ours(c, hf):
    ours = {
        "embedding.word_embeddings.weight": hf["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": hf["model.norm.weight"],
    }
    if "lm_head.weight" in hf:  # absent when tied: named_parameters() names a shared one once
        ours["output_layer.weight"] = hf["lm_head.weight"]
    for i in range(c.num_hidden_layers):
        layer = {n.split(".", 3)[3]: t for n, t in hf.items() if n.startswith(f"model.layers.{i}.")}
        to = f"decoder.layers.{i}."
        for kind in ("weight", "bias"):
            if f"self_attn.k_proj.{kind}" in layer:
                q, k, v = (layer.pop(f"self_attn.{x}_proj.{kind}") for x in "qkv")
                packed = pack_qkv(q, k, v, c.num_key_value_heads)
                ours[f"{to}self_attention.linear_qkv.{kind}"] = packed
        for theirs, mlp in (("mlp.", "mlp."), ("mlp.shared_expert.", "mlp.shared_experts."),
                            ("mlp.shared_experts.", "mlp.shared_experts.")):
            if f"{theirs}gate_proj.weight" in layer:
                gate, up = (layer.pop(f"{theirs}{x}_proj.weight") for x in ("gate", "up"))
                ours[f"{to}{mlp}linear_fc1.weight"] = torch.cat([gate, up])
        names = {
            "input_layernorm.weight": "self_attention.linear_qkv.layer_norm_weight",
            "self_attn.q_norm.weight": "self_attention.q_layernorm.weight",
            "self_attn.k_norm.weight": "self_attention.k_layernorm.weight",
            "self_attn.o_proj.weight": "self_attention.linear_proj.weight",
            "post_attention_layernorm.weight": "mlp.linear_fc1.layer_norm_weight",
            "mlp.down_proj.weight": "mlp.linear_fc2.weight",
            "mlp.gate.weight": "mlp.router.weight",
            "mlp.shared_expert.down_proj.weight": "mlp.shared_experts.linear_fc2.weight",
            "mlp.shared_expert_gate.weight": "mlp.shared_experts.gate_weight",
            "mlp.shared_experts.down_proj.weight": "mlp.shared_experts.linear_fc2.weight",
            "self_attn.q_a_proj.weight": "self_attention.linear_q_down_proj.weight",
            "self_attn.q_a_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
            "self_attn.q_b_proj.weight": "self_attention.linear_q_up_proj.weight",
            "self_attn.q_proj.weight": "self_attention.linear_q_proj.weight",
            "self_attn.kv_a_proj_with_mqa.weight": "self_attention.linear_kv_down_proj.weight",
            "self_attn.kv_a_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
            "self_attn.kv_b_proj.weight": "self_attention.linear_kv_up_proj.weight",
        }
        if hasattr(c, "kv_lora_rank"):  # the norm is not part of a projection
            names["input_layernorm.weight"] = "input_layernorm.weight"
        if "mlp.experts.gate_up_proj" in layer:  # [e, 2f, h] and [e, h, f]; ours are matrices
            names["post_attention_layernorm.weight"] = "pre_mlp_layernorm.weight"
            for theirs, fc in (("gate_up_proj", "linear_fc1"), ("down_proj", "linear_fc2")):
                rows = layer.pop(f"mlp.experts.{theirs}").flatten(0, 1)
                ours[f"{to}mlp.experts.{fc}.weight"] = rows
        if "pre_feedforward_layernorm.weight" in layer:  # Gemma 2 and 3: norms on both sides
            post = "self_attention.linear_proj.post_layernorm.weight"
            names["post_attention_layernorm.weight"] = post
            names["pre_feedforward_layernorm.weight"] = "mlp.linear_fc1.layer_norm_weight"
            names["post_feedforward_layernorm.weight"] = "mlp.linear_fc2.post_layernorm.weight"
        for name, tensor in layer.items():
            ours[to + names[name]] = tensor
    return ours


def run(family, weights, batch, train_batches, dtype):
    """What one precision yields: logits, loss and training curve; gradients in our layout."""
    with computing_in(dtype):
        model = build(family, weights)
        logits, loss = loss_of(model, *batch)
        loss.backward()
        grads = to_ours(family.config, {n: p.grad.clone() for n, p in model.named_parameters()})
        result = dict(logits=logits.detach(), loss=loss.detach())
        if family.train:
            curve = train(build(family, weights), *train_batches)
            result.update(zip(("losses", "grad_norms"), curve))
    return result, grads


def distance(a, b):
    """max |a - b| / max |b|: how far fp32 is from fp64."""
    return float((a.double() - b).abs().max() / b.abs().max())


def make_model(name, family, seed):
    c = family.config
    weights = random_weights(family, seed)
    batch = [t[0] for t in batches(1, c.vocab_size, seed + 1)]
    train_batches = batches(STEPS, c.vocab_size, seed + 2)
    single, single_grads = run(family, weights, batch, train_batches, torch.float32)
    double, double_grads = run(family, weights, batch, train_batches, torch.float64)

    tensors = dict(zip(("tokens", "labels"), batch))
    tensors |= {f"weight.{n}": t for n, t in to_ours(c, weights).items()}
    tensors |= {f"grad.{n}": t for n, t in double_grads.items()}
    tensors |= single | {f"{n}64": t for n, t in double.items()}
    metadata = {"family": name, "flags": f"{common_flags(c)} {family.flags}"}
    if family.train:
        tensors |= zip(("train_tokens", "train_labels"), train_batches)
        metadata["optimizer_flags"] = OPTIMIZER_FLAGS

    # How far PyTorch's own fp32 is from fp64: where a test's tolerance comes from.
    metadata |= {f"fp32_distance.{n}": f"{distance(single[n], double[n]):.1e}" for n in single}
    worst = max(distance(single_grads[n], double_grads[n]) for n in single_grads)
    metadata["fp32_distance.grad"] = f"{worst:.1e}"
    return tensors, metadata


def main():
    torch.set_num_threads(1)
    all_families = families()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {[*all_families, 'ops']}; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    made_with = {"made_with": f"torch {torch.__version__}, transformers {tf.__version__}"}
    for index, name in enumerate([*all_families, "ops"]):
        if args.names and name not in args.names:
            continue
        if name == "ops":
            tensors, metadata = fixture_ops.make(computing_in)
        else:
            tensors, metadata = make_model(name, all_families[name], seed=1000 * (index + 1))
        size = fixture_file.write(args.out / f"{name}.safetensors", tensors, metadata | made_with)
        print(f"{name:8} {size / 1000:6.0f} kB  {metadata}")


if __name__ == "__main__":
    main()
