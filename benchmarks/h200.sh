#!/usr/bin/env bash
# The cases of bench_gpu_train beside compiled PyTorch in one run on one GPU: tunes the products, runs ours with
# its floor, the peer, and ours with --deterministic-mode, and prints a table. Takes about eight minutes.
#   benchmarks/h200.sh OUT_FOLDER [case...]
# Set LD_LIBRARY_PATH to the cuDNN that PyTorch brings for the same library on both sides.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: benchmarks/h200.sh OUT_FOLDER [case...]}
shift
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(gpt2s llama1b llama8b_8L)
mkdir -p "$out"
bench=build/cuda/bench_gpu_train
nvidia-smi --query-gpu=name,driver_version,power.limit --format=csv,noheader | tee "$out/gpu.txt"
nvidia-smi --query-gpu=clocks.sm,power.draw,temperature.gpu --format=csv,noheader,nounits -l 1 >"$out/clocks.csv" &
watcher=$!
trap 'kill $watcher 2>/dev/null || true' EXIT
rm -f "$out/gemm.json" "$out/results.jsonl"
for name in "${cases[@]}"; do
  $bench "$name" --steps 5 --gemm-table none --tune "$out/gemm.json" >"$out/tune_$name.txt"
  $bench "$name" --steps 20 --gemm-table "$out/gemm.json" --ops --floor | tee "$out/ours_$name.txt" | grep -E "tok/s|floor"
  tail -1 "$out/ours_$name.txt" >>"$out/results.jsonl"
  python3 benchmarks/gpu_peer.py "$name" --steps 20 --compile | tee -a "$out/results.jsonl"
  $bench "$name" --steps 5 --gemm-table "$out/gemm.json" --deterministic-mode | tail -1 | tee -a "$out/results.jsonl"
done
kill $watcher 2>/dev/null || true
python3 - "$out" <<'PY'
import json, statistics, sys
out = sys.argv[1]
rows = [json.loads(line) for line in open(f"{out}/results.jsonl")]
print("| case | ours | MFU | peak | of the floor | PyTorch compiled | peak | ratio | deterministic |")
print("|---|---|---|---|---|---|---|---|---|")
for name in dict.fromkeys(r["case"] for r in rows):
    ours = next(r for r in rows if r["case"] == name and "floor_ms" in r and not r["deterministic"])
    peer = next(r for r in rows if r["case"] == name and "peer" in r)
    slow = next(r for r in rows if r["case"] == name and r.get("deterministic"))
    print(f"| {name} | {ours['ms']:.1f} ms, {ours['tokens_per_s']:,.0f} tok/s | {100 * ours['mfu']:.1f}% | {ours['peak_gib']} GiB "
          f"| {100 * ours['floor_ms'] / ours['ms']:.1f}% of {ours['floor_ms']:.1f} ms | {peer['tokens_per_s']:,.0f} tok/s | {peer['peak_gib']} GiB "
          f"| {ours['tokens_per_s'] / peer['tokens_per_s']:.3f} | {slow['ms'] / ours['ms']:.2f} x the time |")
clocks = [tuple(map(float, line.split(","))) for line in open(f"{out}/clocks.csv") if line.strip()]
busy = [c for c in clocks if c[1] > 500]
if busy:
    print(f"under load (over 500 W, {len(busy)} s): median {statistics.median(c[0] for c in busy):.0f} MHz, "
          f"{statistics.median(c[1] for c in busy):.0f} W, {statistics.median(c[2] for c in busy):.0f} C")
PY
