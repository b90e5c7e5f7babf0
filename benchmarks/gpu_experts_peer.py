#!/usr/bin/env python3
"""The grouped products of bench_gpu_experts in PyTorch: torch._grouped_mm, bf16, random data, medians.

    python3 benchmarks/gpu_experts_peer.py
"""
import statistics

import torch

CASES = [(131072, 64, 2048, 2048), (131072, 128, 1536, 2048), (131072, 128, 2048, 768)]  # rows, experts, n, k


def milliseconds(call, rounds=9, calls=5):
    for _ in range(3):
        call()
    seen = []
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        seen.append(start.elapsed_time(end) / calls)
    return statistics.median(seen)


def line(what, flops, call):
    ms = milliseconds(call)
    print(f"  {what:34s} {ms:8.3f} ms {flops / ms / 1e9:7.1f} TFLOP/s", flush=True)


def run(rows, experts, n, k):
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(rows, n, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(experts, n, k, device="cuda", dtype=torch.bfloat16) * 0.02
    dw = torch.zeros(experts, n, k, device="cuda")
    ends = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * (rows // experts)
    flops = 2 * rows * n * k
    print(f"torch {torch.__version__}: {experts} experts, [{n}, {k}] each, {rows} rows, even")
    line("forward", flops, lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends))
    line("dgrad", flops, lambda: torch._grouped_mm(dy, w, offs=ends))
    line("wgrad bf16", flops, lambda: torch._grouped_mm(dy.transpose(-2, -1), x, offs=ends))
    line("wgrad f32, added", flops, lambda: dw.add_(torch._grouped_mm(dy.transpose(-2, -1), x, offs=ends)))


def main():
    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    print(f"dense {size} x {size} x {size}: {2 * size**3 / milliseconds(lambda: a @ b.t()) / 1e9:.1f} TFLOP/s")
    for case in CASES:
        run(*case)


if __name__ == "__main__":
    main()
