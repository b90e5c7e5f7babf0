#!/usr/bin/env python3
"""How fast does PyTorch take the CPU training step that we take? The peer of our own benchmark.

    python benchmarks/cpu_peer.py --threads 2 --steps 10 [--compile]    (torch==2.11.0)

A 15M-parameter Llama: 6 layers, hidden 288, 6 heads of 48, SwiGLU 768, RMSNorm, RoPE, tied
vocabulary of 32000; sequences of 256, batch 8, fp32; clipping at 1.0 and AdamW. Random tokens.
Prints one JSON line: the median step, tokens a second, the model FLOP rate, and beside it the
machine's own rate at one large matrix product (sgemm 4096^3), so that a figure can be read as a
share of the peak.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, FFN, VOCAB, SEQ, BATCH = 6, 288, 6, 768, 32000, 256, 8


def rope_table():  # cos, sin [s, d/2]
    d = HIDDEN // HEADS
    freqs = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    angles = torch.outer(torch.arange(SEQ).float(), freqs)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):  # [b, n, s, d]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN, eps=1e-5), nn.RMSNorm(HIDDEN, eps=1e-5)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.proj = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.fc1 = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.fc2 = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):  # [b, s, h]
        b, s, h = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, s, 3, HEADS, h // HEADS).permute(2, 0, 3, 1, 4)
        q, k, v = rotate(qkv[0], cos, sin), rotate(qkv[1], cos, sin), qkv[2]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # [b, n, s, d]
        x = x + self.proj(y.transpose(1, 2).reshape(b, s, h))
        gate, up = self.fc1(self.norm2(x)).chunk(2, dim=-1)
        return x + self.fc2(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.register_buffer("cos", rope_table()[0])
        self.register_buffer("sin", rope_table()[1])
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):  # [b, s] -> mean loss
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)  # [b, s, v]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def step_flops(parameters):
    """6 a parameter and token (the embedding once, as the head), plus half a square of scores."""
    attention = 6 * LAYERS * BATCH * SEQ * SEQ * HIDDEN
    return 6 * parameters * BATCH * SEQ + attention


def sgemm_gflops(n=4096, repeats=3):
    a, b = torch.randn(n, n), torch.randn(n, n)
    torch.mm(a, b)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b)
        times.append(time.perf_counter() - start)
    return 2 * n**3 / min(times) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="timed steps, after two to warm up")
    parser.add_argument("--compile", action="store_true", help="needs a C++ compiler")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)

    peak = sgemm_gflops()  # again after the steps: on a busy machine the better one is the truer
    model = Llama()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), fused=True,
    )
    loss_of = torch.compile(model) if args.compile else model

    times, losses = [], []
    for _ in range(args.steps + 2):
        text = torch.randint(VOCAB, (BATCH, SEQ + 1))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(text[:, :-1], text[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)

    median = statistics.median(times[2:])
    parameters = sum(p.numel() for p in model.parameters())
    print(json.dumps({
        "peer": f"torch {torch.__version__}", "compile": args.compile, "threads": args.threads,
        "parameters": parameters, "step_ms": round(1e3 * median, 1),
        "fastest_ms": round(1e3 * min(times[2:]), 1), "tokens_per_s": round(BATCH * SEQ / median),
        "model_gflops": round(step_flops(parameters) / median / 1e9, 1),
        "sgemm_gflops": round(max(peak, sgemm_gflops()), 1), "first_loss": round(losses[0], 4),
    }))


if __name__ == "__main__":
    main()
