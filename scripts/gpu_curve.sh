#!/usr/bin/env bash
# The demo's model on the GPU: bf16, fp16 and fp32 beside each other, and --deterministic-mode twice, whose
# checkpoints must be the same bytes; then 200 steps on real text (this project's own pages and sources), bf16
# beside fp32, also with documents that do not see each other. scripts/gpu_curve.sh OUT_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
phalanx=build/cuda/phalanx
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$phalanx corpus --output "$work/stories.u16" --megabytes 4 --seed 1 | head -1

stories=(--token-file "$work/stories.u16" --split 98,2,0 --train-iters 300 --save-interval 1000
  --lr 3e-3 --micro-batch-size 8)
train() {  # name, flags...
  local name=$1
  shift
  $phalanx pretrain \
    --num-layers 4 --hidden-size 192 --num-attention-heads 6 --group-query-attention --num-query-groups 2 \
    --ffn-hidden-size 512 --swiglu --normalization RMSNorm --disable-bias-linear \
    --position-embedding-type rope --seq-length 256 --max-position-embeddings 2048 \
    --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.03 \
    --tokenizer-type ByteTokenizer --make-vocab-size-divisible-by 1 --global-batch-size 16 \
    --min-lr 3e-4 --lr-warmup-iters 20 --lr-decay-style cosine --adam-beta2 0.95 --weight-decay 0.1 \
    --log-interval 100 --eval-interval 100 --eval-iters 4 --device cuda \
    --save "$work/$name" --metrics-file "$out/$name.jsonl" "$@" | tail -5
}

train bf16 --bf16 "${stories[@]}"
train fp32 "${stories[@]}"
train fp16 --fp16 --initial-loss-scale 65536 "${stories[@]}"
train deterministic1 --bf16 --deterministic-mode "${stories[@]}"
train deterministic2 --bf16 --deterministic-mode "${stories[@]}"
train recomputed --bf16 --deterministic-mode "${stories[@]}" \
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
for other in deterministic2 recomputed; do
  $phalanx inspect checkpoint "$work/deterministic1" --diff "$work/$other" --no-statistics | tail -1 | tee "$work/diff.txt"
  grep -q "^0 of " "$work/diff.txt" || { echo "$other: DIFFERENT"; exit 1; }
done
$phalanx generate --load "$work/bf16" --samples 3 --device cuda --temperature 0.5 --check-stories

python3 - "$work/text.jsonl" <<'PY'
import json, pathlib, sys
files = [f for f in sorted(pathlib.Path(".").glob("*/**/*")) if f.suffix in (".md", ".cpp", ".h", ".cu", ".py", ".sh")
         and f.parts[0] in ("docs", "src", "tests", "benchmarks", "scripts")]
with open(sys.argv[1], "w") as out:
    for file in files:
        out.write(json.dumps({"text": file.read_text(errors="replace")}) + "\n")
PY
$phalanx preprocess --input "$work/text.jsonl" --output-prefix "$work/text" --append-eod --tokenizer-type ByteTokenizer | tail -1
text=(--data-path "$work/text_text_document" --split 98,2,0 --train-iters 200 --save-interval 1000 --lr 1e-3)
apart=(--reset-position-ids --reset-attention-mask --eod-mask-loss)
train text_bf16 --bf16 --micro-batch-size 8 "${text[@]}"
train text_fp32 --micro-batch-size 8 "${text[@]}"
train text_fp32_small --micro-batch-size 4 "${text[@]}"  # the same sums in another order
train text_apart_bf16 --bf16 --micro-batch-size 8 "${text[@]}" "${apart[@]}"
train text_apart_fp32 --micro-batch-size 8 "${text[@]}" "${apart[@]}"
$phalanx plot --metrics "bf16=$out/text_bf16.jsonl" "fp32=$out/text_fp32.jsonl" --output "$out/text.svg" \
  --title "200 steps on real text: bf16 and fp32 on an H200"
python3 - "$out" <<'PY'
import json, sys
def losses(name):
    rows = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.jsonl")]
    return [row["lm loss"] for row in rows if "lm loss" in row]
def compare(name, other):
    a, b = losses(name), losses(other)
    assert len(a) == len(b) == 200, (len(a), len(b))
    differences = [abs(x - y) / y for x, y in zip(a, b)]
    mean = sum(differences) / len(differences)
    last = sum(a[-20:]) / sum(b[-20:]) - 1
    print(f"{name} beside {other}: {a[-1]:.4f} and {b[-1]:.4f} at the end; relative difference: mean {mean:.2e}, "
          f"largest {max(differences):.2e}, of the last 20 steps' mean {last:+.2e}")
    return mean
# How far apart two runs come is not the error of a step: differences grow with the steps. So bf16 is measured
# by its rounding (2^-8), and fp32 with its sums in another order tells what training alone makes of a trifle.
compare("text_fp32_small", "text_fp32")
for name in ("text", "text_apart"):
    if compare(f"{name}_bf16", f"{name}_fp32") > 2**-8:
        sys.exit(f"{name}: more than the noise of bf16")
PY
