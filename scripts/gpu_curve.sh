#!/usr/bin/env bash
# The demo's model on the GPU: bf16, fp16 and fp32 beside each other, and --deterministic-mode twice, whose
# checkpoints must be the same bytes. scripts/gpu_curve.sh OUT_FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
phalanx=build/cuda/phalanx
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
$phalanx corpus --output "$work/stories.u16" --megabytes 4 --seed 1 | head -1

train() {  # name, flags...
  local name=$1
  shift
  $phalanx pretrain \
    --num-layers 4 --hidden-size 192 --num-attention-heads 6 --group-query-attention --num-query-groups 2 \
    --ffn-hidden-size 512 --swiglu --normalization RMSNorm --disable-bias-linear \
    --position-embedding-type rope --seq-length 256 --max-position-embeddings 2048 \
    --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.03 \
    --tokenizer-type ByteTokenizer --make-vocab-size-divisible-by 1 --token-file "$work/stories.u16" --split 98,2,0 \
    --micro-batch-size 8 --global-batch-size 16 --train-iters 300 \
    --lr 3e-3 --min-lr 3e-4 --lr-warmup-iters 20 --lr-decay-style cosine --adam-beta2 0.95 --weight-decay 0.1 \
    --log-interval 100 --eval-interval 100 --eval-iters 4 --device cuda \
    --save "$work/$name" --save-interval 1000 --metrics-file "$out/$name.jsonl" "$@" | tail -5
}

train bf16 --bf16
train fp32
train fp16 --fp16 --initial-loss-scale 65536
train deterministic1 --bf16 --deterministic-mode
train deterministic2 --bf16 --deterministic-mode
train recomputed --bf16 --deterministic-mode --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
for other in deterministic2 recomputed; do
  $phalanx inspect checkpoint "$work/deterministic1" --diff "$work/$other" --no-statistics | tail -1 | tee "$work/diff.txt"
  grep -q "^0 of " "$work/diff.txt" || { echo "$other: DIFFERENT"; exit 1; }
done
$phalanx generate --load "$work/bf16" --samples 3 --device cuda --temperature 0.5 --check-stories
