#!/usr/bin/env python3
"""Makes tests/data/hf/*: tiny Hugging Face models with random weights, as transformers saves them.

    .deps/oracle/bin/python scripts/make_hf_fixtures.py            # all of them
    .deps/oracle/bin/python scripts/make_hf_fixtures.py gemma3     # some of them

(Packages as in make_fixtures.py.) Each folder is what `save_pretrained` writes, and beside it
logits.safetensors: `tokens` [1, s] and the fp32 `logits` [1, s, v] that the library computes after
loading the folder again. Some config.json are rewritten in the keys of transformers 4, which is what
most models on the hub have; the library reads those as well, so the logits show that they mean the
same. Nothing here runs in CI: the files are kept.
"""

import argparse
import json
import pathlib
import shutil

import torch
import transformers as tf
from safetensors.torch import load_file, save_file

import fixture_file

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/hf"
LENGTH = 20  # longer than every window, and than the original length of the stretched ones


def rope(theta, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


def families():
    """name -> config, and how its folder differs from a plain save."""
    small = dict(
        num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, max_position_embeddings=64, vocab_size=53, bos_token_id=1,
        eos_token_id=2, pad_token_id=0,
    )
    window = dict(sliding_window=6)
    stretched = dict(factor=4.0, original_max_position_embeddings=16)
    llama3 = dict(rope_type="llama3", rope_theta=10000.0, low_freq_factor=1.0,
                  high_freq_factor=4.0, **stretched)
    gemma = dict(head_dim=8, rms_norm_eps=1e-6)
    latent = dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4,
                  v_head_dim=8)
    deepseek_v3 = dict(q_lora_rank=12, first_k_dense_replace=1, n_routed_experts=8,
                       num_experts_per_tok=4, n_group=4, topk_group=2, n_shared_experts=1,
                       moe_intermediate_size=12, routed_scaling_factor=2.5,
                       num_nextn_predict_layers=0)
    yarn = dict(rope_type="yarn", beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.7,
                **stretched)
    experts = dict(num_experts=6, num_experts_per_tok=3, moe_intermediate_size=12)
    return {
        "gpt2": (
            tf.GPT2Config(n_layer=2, n_embd=16, n_head=4, n_positions=32, vocab_size=53,
                          bos_token_id=1, eos_token_id=2), {}),
        "llama2": (tf.LlamaConfig(**small, rms_norm_eps=1e-5, rope_parameters=rope(10000.0)), {}),
        "llama3": (
            tf.LlamaConfig(**small, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=True,
                           rope_parameters=llama3),
            dict(old_keys=True, shard="8KB")),
        "llama_bin": (
            tf.LlamaConfig(**small, rms_norm_eps=1e-5, rope_parameters=rope(10000.0)),
            dict(old_keys=True, pickled=True)),
        "llama_bias": (
            tf.LlamaConfig(**small, attention_bias=True, mlp_bias=True,
                           rope_parameters=rope(10000.0, rope_type="linear", factor=2.0)),
            dict(old_keys=True)),
        "llama_long": (  # RoPE's rounding in fp32 grows with the position
            tf.LlamaConfig(**{**small, "num_hidden_layers": 4, "hidden_size": 32, "vocab_size": 24,
                              "max_position_embeddings": 512},
                           rms_norm_eps=1e-5, rope_parameters=rope(10000.0)),
            dict(length=512, gain=2.0)),
        "mistral": (
            tf.MistralConfig(**small, **window, head_dim=8, rope_parameters=rope(1000000.0)),
            dict(old_keys=True)),
        "qwen2": (
            tf.Qwen2Config(**small, **window, use_sliding_window=True, max_window_layers=1,
                           rope_parameters=rope(1000000.0)),
            dict(old_keys=True, dtype=torch.bfloat16)),
        "qwen2_yarn": (
            tf.Qwen2Config(**small, tie_word_embeddings=True,
                           rope_parameters=rope(10000.0, **{**stretched, "rope_type": "yarn"})), {}),
        "qwen3": (
            tf.Qwen3Config(**small, head_dim=8, tie_word_embeddings=True,
                           rope_parameters=rope(1000000.0)), {}),
        "mixtral": (
            tf.MixtralConfig(**small, sliding_window=7, head_dim=8, rms_norm_eps=1e-5,
                             num_local_experts=4, num_experts_per_tok=2,
                             rope_parameters=rope(1000000.0)),
            dict(old_keys=True)),
        "mixtral_stacked": (  # as the library keeps experts in memory
            tf.MixtralConfig(**small, rms_norm_eps=1e-5, num_local_experts=4,
                             num_experts_per_tok=2, rope_parameters=rope(1000000.0)),
            dict(stacked=True)),
        "qwen2_moe": (
            tf.Qwen2MoeConfig(**{**small, "num_hidden_layers": 3}, **experts,
                              shared_expert_intermediate_size=20, mlp_only_layers=[1],
                              rope_parameters=rope(1000000.0)), {}),
        "qwen3_moe": (
            tf.Qwen3MoeConfig(**{**small, "num_hidden_layers": 4}, **experts, head_dim=8,
                              decoder_sparse_step=2, norm_topk_prob=True,
                              rope_parameters=rope(1000000.0)),
            dict(dtype=torch.bfloat16)),
        "qwen3_moe_old": (
            tf.Qwen3MoeConfig(**small, **experts, head_dim=8, rope_parameters=rope(1000000.0)),
            dict(old_keys=True, shard="16KB")),
        "olmoe": (
            tf.OlmoeConfig(**{**small, "intermediate_size": 12}, rms_norm_eps=1e-5, num_experts=6,
                           num_experts_per_tok=3, norm_topk_prob=False,
                           rope_parameters=rope(10000.0)), {}),
        "deepseek_v2": (
            tf.DeepseekV2Config(**{**small, **latent}, q_lora_rank=None, first_k_dense_replace=1,
                                n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2,
                                moe_intermediate_size=12, routed_scaling_factor=1.5,
                                rope_parameters=rope(10000.0)), {}),
        "deepseek_v2_groups": (  # as the large one: more experts a token than groups
            tf.DeepseekV2Config(**{**small, **latent}, q_lora_rank=12, first_k_dense_replace=1,
                                n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
                                topk_method="group_limited_greedy", n_group=4, topk_group=2,
                                moe_intermediate_size=12, routed_scaling_factor=2.0,
                                rope_parameters=rope(10000.0)), {}),
        "deepseek_v3": (
            tf.DeepseekV3Config(**{**small, **latent}, **deepseek_v3,
                                rope_parameters=rope(10000.0, **yarn)),
            dict(old_keys=True)),
        "deepseek_v3_fp8": (  # as released, with smaller blocks
            tf.DeepseekV3Config(**{**small, **latent}, **deepseek_v3,
                                rope_parameters=rope(10000.0, **yarn)),
            dict(old_keys=True, fp8_block=8)),
        "gemma1": (
            tf.GemmaConfig(**{**small, "num_key_value_heads": 1}, **gemma,
                           rope_parameters=rope(10000.0)), dict(old_keys=True)),
        "gemma2": (
            tf.Gemma2Config(**small, **gemma, **window, query_pre_attn_scalar=12,
                            rope_parameters=rope(10000.0)), {}),
        "gemma3": (
            tf.Gemma3TextConfig(
                **{**small, "num_hidden_layers": 4}, **gemma, **window, query_pre_attn_scalar=12,
                sliding_window_pattern=3,
                rope_parameters=dict(
                    sliding_attention=rope(10000.0),
                    full_attention=rope(1000000.0, rope_type="linear", factor=8.0))),
            dict(old_keys=True)),
    }


def randomise(model, seed, gain):
    """Matrices scale a signal by `gain`, norms and biases are off their usual values.

    Biases of experts are buffers. They stay above 0: some versions of the library give experts of
    closed groups the score 0, which a negative sum of score and bias would lose against.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.copy_(p + 0.2 * noise)
            elif any(word in name for word in ("embed", "wte", "wpe", "lm_head")):
                p.copy_(0.4 * noise)
            else:
                p.copy_(gain * noise / p.shape[-1] ** 0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.rand(buffer.shape, generator=generator))


def rewrite_in_old_keys(path):
    """rope_parameters -> rope_theta, rope_scaling; dtype -> torch_dtype; no layer_types.

    Qwen3-MoE's num_local_experts -> num_experts.
    """
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    if "full_attention" in parameters:  # Gemma 3
        config["rope_local_base_freq"] = parameters["sliding_attention"]["rope_theta"]
        parameters = parameters["full_attention"]
        config["sliding_window_pattern"] = config.pop("_sliding_window_pattern", 3)
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config.pop("layer_types", None)
    if config["model_type"] == "qwen3_moe":
        config["num_experts"] = config.pop("num_local_experts")
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2) + "\n")


def load(folder):
    """fp32 whatever the files hold; eager attention is the only one that applies soft-capping."""
    model, info = tf.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model.eval()


def pickle_weights(folder):
    """pytorch_model.bin instead of safetensors, as older versions saved them."""
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def quantize(folder, block):
    """Matrices of linear layers in FP8 with a factor a block, as DeepSeek-V3 was released.

    Returns what they mean: the values in bf16, under their names.
    """
    path = folder / "model.safetensors"
    stored, meant = {}, {}
    for name, w in load_file(path).items():
        meant[name] = stored[name] = w
        if "_proj" not in name or w.dim() != 2:
            continue
        rows, cols = (-(-n // block) for n in w.shape)
        padded = torch.zeros(rows * block, cols * block)
        padded[: w.shape[0], : w.shape[1]] = w
        blocks = padded.view(rows, block, cols, block)
        factors = blocks.abs().amax(dim=(1, 3)).clamp_min(1e-12) / 448.0
        small = (blocks / factors[:, None, :, None]).to(torch.float8_e4m3fn)
        wide = (small.float() * factors[:, None, :, None]).view(padded.shape)
        cut = lambda t: t[: w.shape[0], : w.shape[1]].contiguous()
        stored[name] = cut(small.view(padded.shape))
        stored[f"{name}_scale_inv"] = factors
        meant[name] = cut(wide).to(torch.bfloat16)
    save_file(stored, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                     "activation_scheme": "dynamic",
                                     "weight_block_size": [block, block]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return meant


def make(name, config, out, seed, old_keys=False, shard="1GB", dtype=torch.float32, pickled=False,
         length=LENGTH, gain=1.0, stacked=False, fp8_block=0):
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    model = tf.AutoModelForCausalLM.from_config(config)
    randomise(model, seed, gain)
    more = dict(save_original_format=False) if stacked else {}
    model.to(dtype).save_pretrained(folder, max_shard_size=shard, **more)
    if pickled:
        pickle_weights(folder)
    meant = quantize(folder, fp8_block) if fp8_block else None
    if old_keys:
        rewrite_in_old_keys(folder / "config.json")
    tokens = torch.randint(config.vocab_size, (1, length),
                           generator=torch.Generator().manual_seed(seed + 1))
    if meant:  # the library reads FP8 on GPUs only: it gets what the numbers mean
        quantized = folder
        folder = out / f"{name}_meant"
        shutil.copytree(quantized, folder, dirs_exist_ok=True)
        save_file(meant, folder / "model.safetensors", metadata={"format": "pt"})
        plain_config = json.loads((folder / "config.json").read_text())
        del plain_config["quantization_config"]
        (folder / "config.json").write_text(json.dumps(plain_config))
        model = load(folder)
    with torch.no_grad():
        logits = load(folder)(input_ids=tokens, use_cache=False).logits
        plain = tf.AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation="eager").eval()
        plain.load_state_dict(model.state_dict())  # values go into fp32; tables were never rounded
        before = plain(input_ids=tokens, use_cache=False).logits
    far = float((logits - before).abs().max())
    # Stacked experts are used where they lie in the file, and sums depend on the alignment.
    assert far <= (1e-5 if stacked else 0), f"{name}: the saved folder is another model, by {far:g}"
    if meant:
        shutil.rmtree(folder)
        folder = quantized
    fixture_file.write(folder / "logits.safetensors", {"tokens": tokens, "logits": logits},
                       {"made_with": f"torch {torch.__version__}, transformers {tf.__version__}"})
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name:12} {size / 1000:5.0f} kB, {len(list(folder.iterdir()))} files")


def main():
    torch.set_num_threads(1)
    every = families()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"of {list(every)}; default: all")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    args = parser.parse_args()
    for name, (config, how) in every.items():
        if not args.names or name in args.names:
            make(name, config, args.out, seed=sum(name.encode()), **how)


if __name__ == "__main__":
    main()
