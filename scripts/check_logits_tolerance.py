#!/usr/bin/env python3
"""Measures what `phalanx convert check` has to allow: transformers in fp32 against exact arithmetic.

    .deps/oracle/bin/python scripts/check_logits_tolerance.py

(Packages as in make_fixtures.py.) Llamas with random weights; the reference has the same weights in
fp64, with angles of RoPE in fp64. Beside the right model stand wrong ones, computed exactly: what the
tolerance has to find. Columns: largest difference, relative error and KL of the worst position.
"""

import copy

import torch
import transformers as tf

BASE = 10000.0


def model_of(layers, hidden, vocabulary, std):
    config = tf.LlamaConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=2 * hidden, vocab_size=vocabulary, max_position_embeddings=4096,
        rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": BASE},
        tie_word_embeddings=False, attn_implementation="eager")
    torch.manual_seed(1)
    model = tf.LlamaForCausalLM(config).eval()
    for p in model.parameters():
        if p.dim() == 2:
            torch.nn.init.normal_(p, 0, std)
    return model


def in_doubles(model, base=BASE):
    exact = copy.deepcopy(model).double()
    width = exact.config.hidden_size // exact.config.num_attention_heads
    frequency = base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)

    def angles(_, position_ids):
        turned = position_ids[..., None].double() * frequency
        both = torch.cat((turned, turned), -1)
        return both.cos(), both.sin()

    exact.model.rotary_emb.forward = angles
    return exact


def with_epsilon(model, epsilon):
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon = epsilon
    return model


def figures(ours, reference):
    apart = ours.double() - reference
    relative = (apart.norm(dim=-1) / reference.norm(dim=-1)).max()
    p, q = reference.log_softmax(-1), ours.double().log_softmax(-1)
    return apart.abs().max(), relative, (p.exp() * (p - q)).sum(-1).max()


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    print(f"{'model':28} {'tokens':>6} {'':22} {'largest':>9} {'relative':>9} {'KL':>9}")
    for name, shape in {"4 layers, std 0.2": (4, 64, 256, 0.2),
                        "12 layers, std 0.08": (12, 256, 1000, 0.08),
                        "12 layers, std 0.2, chaotic": (12, 256, 1000, 0.2)}.items():
        model = model_of(*shape)
        for length in (32, 512, 2048):
            tokens = torch.randint(shape[2], (1, length), generator=torch.Generator().manual_seed(2))
            reference = in_doubles(model)(tokens).logits[0]
            for what, other in {"right, in fp32": model,
                                "base 10100": in_doubles(model, 1.01 * BASE),
                                "epsilon 1e-6": with_epsilon(in_doubles(model), 1e-6)}.items():
                largest, relative, kl = figures(other(tokens).logits[0], reference)
                print(f"{name:28} {length:6} {what:22} {largest:9.2g} {relative:9.2g} {kl:9.2g}")


if __name__ == "__main__":
    main()
