#!/usr/bin/env python3
"""The cases of bench_gpu_train in PyTorch: bf16 weights, fp32 masters, gradient clipping, fused AdamW.

    python3 benchmarks/gpu_peer.py [case...] [--steps N] [--compile]

Prints one JSON line a case: tokens/s, MFU (same formula), peak memory.
"""
import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

CASES = {  # layers, hidden, heads, groups, head size, ffn, vocabulary, sequence, micro-batch, tied[, experts, experts a token]
    "gpt2s": (12, 768, 12, 12, 64, 3072, 50304, 1024, 64, True),
    "llama1b": (16, 2048, 32, 8, 64, 8192, 128256, 4096, 4, True),
    "llama8b_8L": (8, 4096, 32, 8, 128, 14336, 128256, 8192, 2, False),
    "qwen3moe_6L": (6, 2048, 32, 4, 128, 768, 151936, 4096, 4, False, 128, 8),
}


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Permuted(torch.autograd.Function):
    """Rows in another order; the gradient takes the way back, which is faster than adding rows up."""

    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(order, inverse)
        return x[order]

    @staticmethod
    def backward(ctx, dy):
        _, inverse = ctx.saved_tensors
        return dy[inverse], None, None


class Experts(nn.Module):
    def __init__(self, hidden, ffn, experts, topk):
        super().__init__()
        self.experts, self.topk = experts, topk
        self.router = nn.Linear(hidden, experts, bias=False)
        self.fc1 = nn.Parameter(torch.empty(experts, 2 * ffn, hidden))
        self.fc2 = nn.Parameter(torch.empty(experts, hidden, ffn))

    def forward(self, x):  # [b, s, h]
        shape, k = x.shape, self.topk
        x = x.reshape(-1, shape[-1])  # [t, h]
        weights, chosen = self.router(x).float().softmax(-1).topk(k)  # [t, k]
        weights = weights / weights.sum(-1, keepdim=True)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
        ends = torch.zeros(self.experts, dtype=torch.int32, device=x.device).scatter_add_(
            0, flat, torch.ones_like(flat, dtype=torch.int32)).cumsum(0, dtype=torch.int32)
        rows = Permuted.apply(x[:, None].expand(-1, k, -1).reshape(-1, shape[-1]), order, inverse)  # [t k, h]
        gate, up = torch._grouped_mm(rows, self.fc1.transpose(-2, -1), offs=ends).chunk(2, dim=-1)
        factors = Permuted.apply(weights.flatten(), order, inverse)[:, None]
        active = (F.silu(gate.float()) * up.float() * factors).to(x.dtype)
        y = torch._grouped_mm(active, self.fc2.transpose(-2, -1), offs=ends)
        return Permuted.apply(y, inverse, order).view(-1, k, shape[-1]).sum(1).view(shape)


class Layer(nn.Module):
    def __init__(self, hidden, heads, groups, size, ffn, experts=0, topk=0):
        super().__init__()
        self.experts = Experts(hidden, ffn, experts, topk) if experts else None
        self.norm_q, self.norm_k = (nn.RMSNorm(size, eps=1e-6), nn.RMSNorm(size, eps=1e-6)) if experts else (None, None)
        self.heads, self.groups, self.size = heads, groups, size
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.qkv = nn.Linear(hidden, (heads + 2 * groups) * size, bias=False)
        self.proj = nn.Linear(heads * size, hidden, bias=False)
        if not experts:
            self.fc1 = nn.Linear(hidden, 2 * ffn, bias=False)
            self.fc2 = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, -1, self.size).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.groups, self.groups), dim=1)
        if self.experts is not None:
            q, k = self.norm_q(q), self.norm_k(k)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.groups)
        x = x + self.proj(o.transpose(1, 2).reshape(b, s, -1))
        if self.experts is not None:
            return x + self.experts(self.norm2(x))
        gate, up = self.fc1(self.norm2(x)).chunk(2, dim=-1)
        return x + self.fc2(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, layers, hidden, heads, groups, size, ffn, vocab, tied, experts=0, topk=0):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads, groups, size, ffn, experts, topk) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels, cos, sin):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def run(name, steps, compiled):
    layers, hidden, heads, groups, size, ffn, vocab, s, b, tied, experts, topk = (*CASES[name], 0, 0)[:12]
    torch.cuda.reset_peak_memory_stats()
    model = Llama(layers, hidden, heads, groups, size, ffn, vocab, tied, experts, topk).cuda().bfloat16()
    weights = list(model.parameters())
    masters = [p.detach().float().requires_grad_(True) for p in weights]
    optimizer = torch.optim.AdamW(masters, lr=1e-4, betas=(0.9, 0.95), fused=True)
    angle = torch.outer(torch.arange(s).float(), 500000.0 ** (-torch.arange(0, size, 2).float() / size))
    cos, sin = angle.cos().cuda().bfloat16(), angle.sin().cuda().bfloat16()
    forward = torch.compile(model) if compiled else model

    def step():
        tokens = torch.randint(vocab, (b, s + 1), device="cuda")
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            loss = forward(tokens[:, :-1], tokens[:, 1:], cos, sin)
            loss.backward()
        for master, weight in zip(masters, weights):
            master.grad = weight.grad.float()
            weight.grad = None
        torch.nn.utils.clip_grad_norm_(masters, 1.0, foreach=True)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, masters)
        return loss

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        loss = step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / steps
    matmul = layers * (hidden * (heads + 2 * groups) * size + heads * size * hidden
                       + 3 * hidden * ffn * max(topk, 1) + hidden * experts) + vocab * hidden
    rate = b * s / seconds
    flops = 6 * matmul + 6 * layers * s * heads * size
    print(json.dumps({"case": name, "peer": "torch " + torch.__version__, "compile": compiled, "ms": round(seconds * 1e3, 1),
                      "tokens_per_s": round(rate), "mfu": round(flops * rate / 989.5e12, 4),
                      "peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1), "loss": round(loss.item(), 3)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    for name in options.cases:
        run(name, options.steps, options.compile)
        torch.cuda.empty_cache()


main()
