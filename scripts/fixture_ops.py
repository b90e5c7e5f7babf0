"""The op-level oracles of ops.safetensors, all in float64. Run by make_fixtures.py.

Names are `<op>.<variant>.<tensor>`: y is the output, dy a random gradient of it, dx (dw, ..) what
PyTorch's autograd makes of it. Layouts are ours: attention and RoPE take [s, b, n, d]. Plain
numbers (epsilon, scale, window, ..) stand in the metadata under `<op>.<variant>`.
"""

import torch
import torch.nn.functional as F
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama import modeling_llama


def make(computing_in):
    with computing_in(torch.float64):
        torch.manual_seed(7)
        tensors, metadata = {}, {}
        for part in (norms, activations, rope, attention, adamw, clipping, cross_entropy):
            part(tensors, metadata)
    return tensors, metadata


def record(tensors, name, f, inputs, **more):
    """Runs y = f(**inputs), sends a random dy back, and stores all of it under `name`."""
    leaves = {n: t.clone().requires_grad_() for n, t in inputs.items()}
    y = f(**leaves)
    dy = torch.randn_like(y)
    y.backward(dy)
    stored = {**inputs, "y": y, "dy": dy, **{f"d{n}": t.grad for n, t in leaves.items()}, **more}
    tensors |= {f"{name}.{n}": t.detach() for n, t in stored.items()}


def norms(tensors, metadata):
    h, eps = 11, 1e-5
    x, w, b = 2 * torch.randn(3, 2, h) + 0.5, 1 + 0.3 * torch.randn(h), torch.randn(h)
    layer = lambda x, w, b: F.layer_norm(x, (h,), w, b, eps)
    layer_1p = lambda x, w, b: F.layer_norm(x, (h,), 1 + w, b, eps)
    record(tensors, "layer_norm.plain", layer, dict(x=x, w=w, b=b))
    record(tensors, "layer_norm.zero_centred", layer_1p, dict(x=x, w=w - 1, b=b))
    record(tensors, "rms_norm.plain", lambda x, w: F.rms_norm(x, (h,), w, eps), dict(x=x, w=w))
    record(
        tensors, "rms_norm.zero_centred", lambda x, w: F.rms_norm(x, (h,), 1 + w, eps),
        dict(x=x, w=w - 1),
    )
    for name in ("layer_norm.plain", "layer_norm.zero_centred", "rms_norm.plain",
                 "rms_norm.zero_centred"):
        metadata[name] = f"eps={eps:g}"


def activations(tensors, metadata):
    # Tails as well as the middle: the tanh form and the erf form part most near |x| = 2.
    x = torch.cat([torch.linspace(-12, 12, 25), torch.randn(8)]).reshape(3, 11)
    quick = lambda x: x * torch.sigmoid(1.702 * x)
    single = {
        "gelu_erf": lambda x: F.gelu(x),
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": lambda x: F.silu(x),
        "quick_gelu": quick,
        "squared_relu": lambda x: F.relu(x) ** 2,
    }
    for name, f in single.items():
        record(tensors, f"activation.{name}", f, dict(x=x))

    packed = 3 * torch.randn(3, 2, 10)  # the last dimension is [gate | up]
    for name, act in {"swiglu": F.silu, "geglu": single["gelu_tanh"], "quick_geglu": quick}.items():
        def gated(x, act=act):
            gate, up = x.chunk(2, dim=-1)
            return act(gate) * up
        record(tensors, f"activation.{name}", gated, dict(x=packed))


def rope(tensors, metadata):
    s, d = 5, 16
    x = torch.randn(s, 2, 2, d)  # [s, b, n, d], at positions 0 .. s-1
    far = torch.tensor([0, 1, 5, 17, 100, 4000])
    tensors["rope.x"], tensors["rope.table_positions"] = x, far

    def variant(name, theta=10000.0, kind="default", fraction=1.0, interleaved=False, **scaling):
        rotated = int(d * fraction)
        if kind == "default":
            inv_freq, factor = theta ** (-torch.arange(0, rotated, 2) / rotated), 1.0
        else:
            config = transformers.LlamaConfig(
                head_dim=d, num_attention_heads=4, hidden_size=4 * d, max_position_embeddings=4096,
                rope_parameters=dict(rope_type=kind, rope_theta=theta, **scaling),
            )
            inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu")

        def rotate(x):
            angles = torch.outer(torch.arange(s).double(), inv_freq)  # [s, rotated / 2]
            turned, kept = x[..., :rotated], x[..., rotated:]
            if interleaved:  # channels 2i and 2i+1 are the two parts of a complex number
                pairs = torch.view_as_complex(turned.reshape(*turned.shape[:-1], -1, 2))
                turns = factor * torch.polar(torch.ones_like(angles), angles)[:, None, None]
                turned = torch.view_as_real(pairs * turns).flatten(-2)
            else:  # channels i and i + rotated/2 are; the library's function wants [b, n, s, d]
                both = torch.cat([angles, angles], dim=-1)
                q = turned.permute(1, 2, 0, 3)
                q, _ = modeling_llama.apply_rotary_pos_emb(
                    q, q, (factor * both.cos())[None], (factor * both.sin())[None]
                )
                turned = q.permute(2, 0, 1, 3)
            return torch.cat([turned, kept], dim=-1)

        table = torch.outer(far.double(), inv_freq)
        record(
            tensors, f"rope.{name}", rotate, dict(x=x), inv_freq=inv_freq,
            attention_factor=torch.tensor(factor), cos=factor * table.cos(),
            sin=factor * table.sin(),
        )
        del tensors[f"rope.{name}.x"]  # the same for all: rope.x
        words = dict(theta=theta, rotated=rotated, interleaved=int(interleaved), **scaling)
        metadata[f"rope.{name}"] = " ".join(f"{k}={v}" for k, v in words.items())

    variant("half_split")
    variant("interleaved", interleaved=True)
    variant("partial", fraction=0.5)
    variant("partial_interleaved", fraction=0.5, interleaved=True)
    variant("linear", kind="linear", factor=4.0)
    variant(
        "llama3", theta=500000.0, kind="llama3", factor=8.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=8192,
    )
    yarn = dict(kind="yarn", factor=16.0, original_max_position_embeddings=256)
    variant("yarn", **yarn)
    variant("yarn_betas", **yarn, beta_fast=16.0, beta_slow=2.0)
    variant("yarn_untruncated", **yarn, truncate=False)
    variant("yarn_mscale", **yarn, mscale=1.0, mscale_all_dim=0.5)


def attention(tensors, metadata):
    """softmax(scale q k^T, capped, masked) v, and the log-sum-exp [b, n, s] of the scores."""

    def variant(name, n, g, s, b=2, d=8, left=None, cap=None, scale=None, gain=1.0, lengths=None,
                sink=False, causal=True):
        scale = d**-0.5 if scale is None else scale
        inputs = dict(q=gain * torch.randn(s, b, n, d), k=torch.randn(s, b, g, d),
                      v=torch.randn(s, b, g, d))
        if sink:
            inputs["sink"] = torch.randn(n)
        row, column = torch.arange(s)[:, None], torch.arange(s)[None]
        seen = torch.ones(s, s, dtype=torch.bool)
        if causal:
            seen &= column <= row
        if left is not None:
            seen &= row - column <= left
        if lengths:  # packed: a token sees its own sequence only
            sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
            seen &= sequence[:, None] == sequence[None]

        def scores(q, k):
            q, k = q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3).repeat_interleave(n // g, dim=1)
            a = scale * q @ k.transpose(-1, -2)
            a = cap * torch.tanh(a / cap) if cap else a
            return a.masked_fill(~seen, float("-inf"))

        def attend(q, k, v, sink=None):
            a = scores(q, k)
            if sink is not None:  # one more column, that gives nothing
                a = torch.cat([a, sink.view(1, n, 1, 1).expand(b, n, s, 1)], dim=-1)
            p = torch.softmax(a, dim=-1)[..., :s]
            y = p @ v.permute(1, 2, 0, 3).repeat_interleave(n // g, dim=1)
            return y.permute(2, 0, 1, 3)

        if not cap and not sink:  # PyTorch's own attention has to agree with the above
            q, k, v = (t.permute(1, 2, 0, 3) for t in inputs.values())
            own = F.scaled_dot_product_attention(q, k, v, seen, scale=scale, enable_gqa=True)
            torch.testing.assert_close(own.permute(2, 0, 1, 3), attend(**inputs))
        lse = torch.logsumexp(scores(inputs["q"], inputs["k"]), dim=-1)
        if sink:
            lse = torch.logaddexp(lse, inputs["sink"].view(1, n, 1))
        record(tensors, f"attention.{name}", attend, inputs, lse=lse)
        words = dict(scale=scale, causal=int(causal), left=left, softcap=cap,
                     lengths=",".join(map(str, lengths)) if lengths else None)
        words = [f"{k}={v}" for k, v in words.items() if v is not None]
        metadata[f"attention.{name}"] = " ".join(words)

    variant("full", n=2, g=2, s=7, causal=False)
    variant("causal", n=2, g=2, s=7)
    variant("gqa", n=4, g=2, s=9)
    variant("window", n=2, g=1, s=11, left=3)
    variant("softcap", n=2, g=2, s=7, cap=5.0, gain=6.0)
    variant("gemma", n=4, g=2, s=9, left=4, cap=5.0, gain=6.0, scale=12**-0.5)
    variant("packed", n=2, g=1, s=12, b=1, lengths=[5, 2, 4, 1])
    variant("sink", n=4, g=2, s=7, left=3, sink=True)


def adamw(tensors, metadata):
    steps, lr, betas, eps, decay = 3, 1e-2, (0.9, 0.95), 1e-8, 0.1
    p = torch.randn(5, 3).requires_grad_()
    grads = torch.randn(steps, 5, 3)
    optimizer = torch.optim.AdamW([p], lr=lr, betas=betas, eps=eps, weight_decay=decay)
    stored = {"p0": p.detach().clone(), "g": grads}
    history = {"p": [], "exp_avg": [], "exp_avg_sq": []}  # after each step
    for g in grads:
        p.grad = g.clone()
        optimizer.step()
        history["p"].append(p.detach().clone())
        for name in ("exp_avg", "exp_avg_sq"):
            history[name].append(optimizer.state[p][name].clone())
    stored |= {name: torch.stack(list_) for name, list_ in history.items()}
    tensors |= {f"adamw.{n}": t for n, t in stored.items()}
    beta1, beta2 = betas
    metadata["adamw"] = f"lr={lr} beta1={beta1} beta2={beta2} eps={eps:g} weight_decay={decay}"


def clipping(tensors, metadata):
    clip = 1.0
    params = [torch.zeros(4, 3), torch.zeros(5)]
    for i, p in enumerate(params):
        p.grad = torch.randn_like(p)
        tensors[f"clip.g{i}"] = p.grad.clone()
    tensors["clip.norm"] = torch.nn.utils.clip_grad_norm_(params, clip)
    for i, p in enumerate(params):
        tensors[f"clip.clipped{i}"] = p.grad
    metadata["clip"] = f"max_norm={clip}"


def cross_entropy(tensors, metadata):
    rows, v, ignored = 9, 13, -100
    logits = 4 * torch.randn(rows, v)
    logits[4] += 800.0  # exp() of these overflows unless the row's maximum is taken off
    labels = torch.randint(v, (rows,))
    labels[torch.tensor([1, 6])] = ignored
    leaf = logits.clone().requires_grad_()
    loss = F.cross_entropy(leaf, labels, ignore_index=ignored)
    loss.backward()
    token = F.cross_entropy(logits, labels, ignore_index=ignored, reduction="none")
    stored = dict(logits=logits, labels=labels, loss=loss.detach(), token_loss=token,
                  dlogits=leaf.grad, lse=torch.logsumexp(logits, dim=-1))
    tensors |= {f"cross_entropy.{n}": t for n, t in stored.items()}
    metadata["cross_entropy"] = f"ignored={ignored}"
