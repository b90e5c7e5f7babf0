#!/usr/bin/env python3
"""Checks that the files of tests/data/oracle say enough, and say it truly.

A second, plain transformer below reads nothing but a file: weights by our names, flags from the
metadata. In float64 it has to give the file's logits, loss and every gradient, and the training
curve. If it does, the layouts and flags are right and transformers did compute in float64. Then
the flags that leave names and shapes as they are get other values, one at a time: the loss has to
move, or the fixture would not notice a missing feature. ops.safetensors is not checked here.

    .deps/oracle/bin/python scripts/check_fixtures.py     (packages as in make_fixtures.py)
"""

import argparse
import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors import safe_open

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests/data/oracle"
# float64 rounds at 1e-16, and sums of some thousand terms stay below 1e-14 here; one float32 step
# anywhere in the model would show as 1e-8.
TOLERANCE = 1e-12
SWITCHES = """apply-layernorm-1p swiglu geglu openai-gelu disable-bias-linear add-qkv-bias
    group-query-attention use-rope-scaling untie-embeddings-and-output-weights post-layernorms
    qk-layernorm qk-layernorm-all-heads multi-latent-attention moe-router-pre-softmax moe-shared-expert-gate""".split()
VALUES = """num-layers:2 hidden-size:0 ffn-hidden-size:0 num-attention-heads:1 num-query-groups:0
    kv-channels:0 vocab-size:0 norm-epsilon:1e-5 rotary-base:10000 rope-scaling-factor:8
    rotary-base-local:0 embedding-scale:1 query-scale:0 attn-logit-softcapping:0
    final-logit-softcapping:0 num-experts:0 moe-router-topk:2 moe-ffn-hidden-size:0
    moe-shared-expert-intermediate-size:0 q-lora-rank:0 kv-lora-rank:0 qk-head-dim:0
    qk-pos-emb-head-dim:0 v-head-dim:0 rotary-scaling-factor:1
    yarn-original-max-position-embeddings:0 mscale-all-dim:0e0 mscale:1e0 moe-router-num-groups:0
    moe-router-group-topk:0 moe-router-topk-scaling-factor:1""".split()
WORDS = """moe-router-score-function normalization position-embedding-type window-size window-attn-skip-freq
    moe-layer-freq""".split()


def parse(flags):
    parser = argparse.ArgumentParser()
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    for item in VALUES:
        name, default = item.split(":")
        number = float if "e" in default or "scal" in name or "soft" in name else int
        parser.add_argument(f"--{name}", type=number, default=number(default))
    for name in WORDS:
        parser.add_argument(f"--{name}")
    known, rest = parser.parse_known_args(flags.split())
    meaningless = {"--seq-length", "--max-position-embeddings", "--make-vocab-size-divisible-by",
                   "--micro-batch-size", "--global-batch-size", "--attention-dropout",
                   "--hidden-dropout"}
    unknown = {word for word in rest if word.startswith("--")} - meaningless
    assert not unknown, f"flags that nobody here reads: {unknown}"
    return known


def norm(o, x, w, b=None):
    w = 1 + w if o.apply_layernorm_1p else w
    if o.normalization == "RMSNorm":
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + o.norm_epsilon) * w
    return F.layer_norm(x, w.shape, w, b, o.norm_epsilon)


def rotate(o, x, windowed):  # [b, s, n, d]
    s, d = x.shape[1], x.shape[3]
    base = o.rotary_base_local if windowed and o.rotary_base_local else o.rotary_base
    freqs = [base ** (-2 * i / d) for i in range(d // 2)]
    if o.use_rope_scaling:  # Llama 3.1: long waves stretched, short ones kept, a ramp between
        for i, freq in enumerate(freqs):
            turns = 8192 * freq / (2 * math.pi)  # in the original context
            keep = min(1.0, max(0.0, (turns - 1) / (4 - 1)))
            freqs[i] = freq * (keep + (1 - keep) / o.rope_scaling_factor)
    angle = torch.outer(torch.arange(s).double(), torch.tensor(freqs))[:, None]  # [s, 1, d/2]
    a, b = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def magnitude(factor, mscale):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def rotate_pairs(o, x):  # [b, s, n, d]: channels (2i, 2i + 1), stretched by YaRN
    s, d = x.shape[1], x.shape[3]
    f, original = o.rotary_scaling_factor, o.yarn_original_max_position_embeddings
    freqs = [o.rotary_base ** (-2 * i / d) for i in range(d // 2)]
    if f != 1:
        pair = lambda turns: d * math.log(original / (2 * math.pi * turns)) / (
            2 * math.log(o.rotary_base))
        low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), d - 1)
        for i, freq in enumerate(freqs):
            stretched = min(1.0, max(0.0, (i - low) / (high - low if high > low else 1e-3)))
            freqs[i] = freq * (stretched / f + 1 - stretched)
    angle = torch.outer(torch.arange(s).double(), torch.tensor(freqs))[:, None]  # [s, 1, d/2]
    size = magnitude(f, o.mscale) / magnitude(f, o.mscale_all_dim)
    cos, sin, a, b = size * angle.cos(), size * angle.sin(), x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(3)


def latent_attention(o, w, x):
    n, dn, dr, dv = o.num_attention_heads, o.qk_head_dim, o.qk_pos_emb_head_dim, o.v_head_dim
    b, s, _ = x.shape

    def up(name, latent):
        if o.qk_layernorm:
            latent = norm(o, latent, w[f"{name}.layer_norm_weight"])
        return F.linear(latent, w[f"{name}.weight"])

    if o.q_lora_rank:
        q = up("linear_q_up_proj", F.linear(x, w["linear_q_down_proj.weight"]))
    else:
        q = F.linear(x, w["linear_q_proj.weight"])
    q = q.view(b, s, n, dn + dr)
    latent, shared = F.linear(x, w["linear_kv_down_proj.weight"]).split([o.kv_lora_rank, dr], -1)
    k, v = up("linear_kv_up_proj", latent).view(b, s, n, dn + dv).split([dn, dv], -1)
    q = torch.cat([q[..., :dn], rotate_pairs(o, q[..., dn:])], -1)
    k = torch.cat([k, rotate_pairs(o, shared[:, :, None]).expand(b, s, n, dr)], -1)
    scale = magnitude(o.rotary_scaling_factor, o.mscale_all_dim) ** 2 / math.sqrt(dn + dr)
    scores = torch.einsum("bqnd,bknd->bnqk", q, k) * scale
    hidden = torch.arange(s)[:, None] < torch.arange(s)[None]
    out = torch.einsum("bnqk,bknd->bqnd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)
    return F.linear(out.flatten(2), w["linear_proj.weight"])


def cap(x, limit):
    return limit * torch.tanh(x / limit) if limit else x


def attention(o, w, x, windowed):
    n = o.num_attention_heads
    g, d = (o.num_query_groups if o.group_query_attention else n), o.kv_channels
    b, s, _ = x.shape
    qkv = F.linear(x, w["linear_qkv.weight"], w.get("linear_qkv.bias"))
    qkv = qkv.view(b, s, g, n // g + 2, d)
    q, k, v = qkv[..., :-2, :].reshape(b, s, n, d), qkv[..., -2, :], qkv[..., -1, :]
    if o.qk_layernorm and o.qk_layernorm_all_heads:
        q = norm(o, q.flatten(2), w["q_layernorm.weight"]).view(b, s, n, d)
        k = norm(o, k.flatten(2), w["k_layernorm.weight"]).view(b, s, g, d)
    elif o.qk_layernorm:
        q, k = norm(o, q, w["q_layernorm.weight"]), norm(o, k, w["k_layernorm.weight"])
    if o.position_embedding_type == "rope":
        q, k = rotate(o, q, windowed), rotate(o, k, windowed)
    out = []
    for head in range(n):
        group = head // (n // g)
        scores = q[:, :, head] @ k[:, :, group].transpose(1, 2) * (o.query_scale or d) ** -0.5
        scores = cap(scores, o.attn_logit_softcapping)
        behind = torch.arange(s)[:, None] - torch.arange(s)[None]
        hidden = behind < 0
        if windowed:
            hidden |= behind > int(o.window_size.split(",")[0])
        out.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v[:, :, group])
    return F.linear(torch.cat(out, -1), w["linear_proj.weight"], w.get("linear_proj.bias"))


def mlp(o, w, x):
    x = F.linear(x, w["linear_fc1.weight"], w.get("linear_fc1.bias"))
    if o.swiglu or o.geglu:
        gate, up = x.chunk(2, -1)
        x = (F.silu(gate) if o.swiglu else F.gelu(gate, approximate="tanh")) * up
    else:
        x = F.gelu(x, approximate="tanh" if o.openai_gelu else "none")
    return F.linear(x, w["linear_fc2.weight"], w.get("linear_fc2.bias"))


def experts(o, w, x):
    """Token by token: every token through the MLPs that it chooses, and the shared one."""
    fc1 = w["experts.linear_fc1.weight"].chunk(o.num_experts)
    fc2 = w["experts.linear_fc2.weight"].chunk(o.num_experts)
    rows = []
    for token in x.flatten(0, 1):  # [h]
        logits = w["router.weight"] @ token  # [e]
        scores = logits.sigmoid() if o.moe_router_score_function == "sigmoid" else logits
        if o.moe_router_num_groups:
            groups = scores.view(o.moe_router_num_groups, -1)
            best = groups.topk(o.moe_router_topk // o.moe_router_group_topk).values.sum(-1)
            allowed = torch.zeros_like(groups, dtype=torch.bool)
            allowed[best.topk(o.moe_router_group_topk).indices] = True
            scores = scores.masked_fill(~allowed.flatten(), -math.inf)
        chosen = scores.topk(o.moe_router_topk).indices
        if o.moe_router_score_function == "sigmoid":
            weights = scores[chosen] / scores[chosen].sum()
        elif o.moe_router_pre_softmax:
            weights = logits.softmax(0)[chosen]
        else:
            weights = logits[chosen].softmax(0)
        weights = weights * o.moe_router_topk_scaling_factor
        row = sum(weight * mlp(o, {"linear_fc1.weight": fc1[e], "linear_fc2.weight": fc2[e]}, token)
                  for weight, e in zip(weights, chosen))
        if o.moe_shared_expert_intermediate_size:
            shared = {n.split(".", 1)[1]: t for n, t in w.items() if n.startswith("shared_experts.")}
            gate = (shared["gate_weight"] @ token).sigmoid() if o.moe_shared_expert_gate else 1.0
            row = row + gate * mlp(o, shared, token)
        rows.append(row)
    return torch.stack(rows).view(x.shape)


def forward(o, w, tokens):
    x = w["embedding.word_embeddings.weight"][tokens] * o.embedding_scale
    if o.position_embedding_type == "learned_absolute":
        x = x + w["embedding.position_embeddings.weight"][: tokens.shape[1]]
    pattern = json.loads(o.window_attn_skip_freq or "null") or [1] * o.num_layers
    sparse = json.loads(o.moe_layer_freq or "null") or [int(o.num_experts > 0)] * o.num_layers
    for i in range(o.num_layers):
        layer = lambda part: {n.split(part, 1)[1]: t for n, t in w.items()
                              if n.startswith(f"decoder.layers.{i}.{part}")}
        a, m = layer("self_attention."), layer("mlp.")
        pre = lambda p, name: norm(o, x, p[f"{name}.layer_norm_weight"],
                                   p.get(f"{name}.layer_norm_bias"))
        if o.multi_latent_attention:
            y = latent_attention(o, a, norm(o, x, layer("input_layernorm.")["weight"]))
        else:
            y = attention(o, a, pre(a, "linear_qkv"), bool(o.window_size and pattern[i]))
        x = x + (norm(o, y, a["linear_proj.post_layernorm.weight"]) if o.post_layernorms else y)
        if sparse[i]:
            y = experts(o, m, norm(o, x, layer("pre_mlp_layernorm.")["weight"]))
        else:
            y = mlp(o, m, pre(m, "linear_fc1"))
        x = x + (norm(o, y, m["linear_fc2.post_layernorm.weight"]) if o.post_layernorms else y)
    x = norm(o, x, w["decoder.final_layernorm.weight"], w.get("decoder.final_layernorm.bias"))
    untied = o.untie_embeddings_and_output_weights
    head = w["output_layer.weight" if untied else "embedding.word_embeddings.weight"]
    return cap(F.linear(x, head), o.final_logit_softcapping)


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())  # -100 is ignored


def curve(o, w, tokens, labels):
    """Adam written out: decay on matrices, clipping by the norm of all gradients."""
    m, v = ({n: torch.zeros_like(t) for n, t in w.items()} for _ in range(2))
    losses, norms = [], []
    for step, (x, y) in enumerate(zip(tokens, labels), start=1):
        loss = loss_of(forward(o, w, x), y)
        grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        total = math.sqrt(sum(float(g.pow(2).sum()) for g in grads.values()))
        losses.append(loss.item())
        norms.append(total)
        for n, p in w.items():
            g = grads[n] * min(1.0, 1.0 / (total + 1e-6))
            m[n], v[n] = 0.9 * m[n] + 0.1 * g, 0.95 * v[n] + 0.05 * g * g
            up = (m[n] / (1 - 0.9**step)) / ((v[n] / (1 - 0.95**step)).sqrt() + 1e-8)
            decay = 0.1 if p.dim() >= 2 else 0.0
            w[n] = (p.detach() * (1 - 1e-3 * decay) - 1e-3 * up).requires_grad_()
    return torch.tensor(losses), torch.tensor(norms)


def distance(a, b):
    return float((a.detach() - b).abs().max() / b.abs().max())


def check_model(name, file):
    t = {key: file.get_tensor(key) for key in file.keys()}
    flags = file.metadata()["flags"]
    o = parse(flags)
    weights = lambda: {k[7:]: v.double().requires_grad_() for k, v in t.items()
                       if k.startswith("weight.")}
    w = weights()
    logits = forward(o, w, t["tokens"])
    loss = loss_of(logits, t["labels"])
    grads = torch.autograd.grad(loss, list(w.values()))
    found = {"loss64": distance(loss, t["loss64"]), "logits64": distance(logits, t["logits64"])}
    assert {f"grad.{n}" for n in w} == {k for k in t if k.startswith("grad.")}, name
    found["grad"] = max(distance(g, t[f"grad.{n}"]) for n, g in zip(w, grads))
    if "losses64" in t:
        losses, norms = curve(o, weights(), t["train_tokens"], t["train_labels"])
        found["losses64"] = distance(losses, t["losses64"])
        found["grad_norms64"] = distance(norms, t["grad_norms64"])
        assert t["losses"][-1] < t["losses"][0] and t["grad_norms"].max() > 1.0, name
    assert max(found.values()) < TOLERANCE, (name, found)
    print(f"{name:8}", {k: f"{v:.0e}" for k, v in found.items()})

    # Left out or changed, one at a time: does the loss notice?
    changes = {k: False for k in ("apply_layernorm_1p", "use_rope_scaling", "post_layernorms",
                                  "qk_layernorm", "openai_gelu", "moe_router_pre_softmax",
                                  "moe_shared_expert_gate") if getattr(o, k)}
    changes |= {k: 0 for k in ("attn_logit_softcapping", "final_logit_softcapping", "query_scale",
                               "rotary_base_local") if getattr(o, k)}
    changes["norm_epsilon"] = 10 * o.norm_epsilon
    if o.embedding_scale != 1:
        changes["embedding_scale"] = 1.0
    if o.window_size:
        changes["window_size"] = "8,0"  # one token more
    if o.window_attn_skip_freq:
        changes["window_attn_skip_freq"] = None
    if o.num_experts:
        if not o.moe_router_num_groups:
            changes["moe_router_topk"] = o.moe_router_topk - 1
        if o.moe_router_score_function != "sigmoid":
            changes["moe_router_pre_softmax"] = not o.moe_router_pre_softmax
    if o.moe_router_num_groups:
        changes["moe_router_num_groups"] = 0
        changes["moe_router_topk_scaling_factor"] = 1.0
    if o.rotary_scaling_factor != 1:
        changes |= dict(rotary_scaling_factor=1.0, mscale=0.5, mscale_all_dim=0.0)
    if o.position_embedding_type == "rope":
        changes["rotary_base"] = 2 * o.rotary_base
    for key, value in changes.items():
        other = forward(argparse.Namespace(**{**vars(o), key: value}), w, t["tokens"])
        moved = abs(loss_of(other, t["labels"]).item() - loss.item()) / loss.item()
        print(f"{'':8} with another {key} the loss moves by {moved:.0e}")
        assert moved > 1e-7, f"{name}: {key} hardly matters"


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="files without their ending; default: all")
    args = parser.parse_args()
    for path in sorted(DATA.glob("*.safetensors")):
        if args.names and path.stem not in args.names:
            continue
        with safe_open(path, "pt") as file:
            if path.stem != "ops":
                check_model(path.stem, file)


if __name__ == "__main__":
    main()
