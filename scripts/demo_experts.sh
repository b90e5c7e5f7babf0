#!/usr/bin/env bash
# A mixture of 16 experts, of which each byte of a text uses two, learns the demo's corpus on four ranks of this
# machine, four experts on each: a few minutes on a CPU. Then text that it writes, its loss curve, and a picture of
# how busy each expert was. PHX_PROGRAM=build/release/phalanx takes a program that is there and leaves out packages
# and build.
set -euo pipefail
cd "$(dirname "$0")/.."
phalanx=${PHX_PROGRAM:-build/release/phalanx}
if [ -z "${PHX_PROGRAM:-}" ]; then
  scripts/setup.sh
  scripts/build.sh release phalanx
fi
out=${PHX_DEMO_OUT:-out/demo_experts}
iterations=${PHX_DEMO_ITERS:-300}
mkdir -p "$out"
# Only what an earlier demo left here goes; anything else in the folder stays.
rm -rf "$out"/{stories.u16,corpus.txt,checkpoints,metrics.jsonl,metrics.jsonl.old,sample.txt,loss.svg,experts.svg}

echo
echo "== a corpus from a small grammar"
"$phalanx" corpus --output "$out/stories.u16" --megabytes 4 --seed 1 | tee "$out/corpus.txt"

echo
echo "== training"
"$phalanx" pretrain \
  --local-ranks 4 --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall \
  --num-experts 16 --moe-router-topk 2 --moe-ffn-hidden-size 128 --moe-aux-loss-coeff 1e-2 \
  --num-layers 3 --hidden-size 128 --num-attention-heads 4 --group-query-attention --num-query-groups 2 \
  --swiglu --normalization RMSNorm --disable-bias-linear \
  --position-embedding-type rope --seq-length 256 --max-position-embeddings 2048 \
  --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.03 \
  --tokenizer-type ByteTokenizer --make-vocab-size-divisible-by 1 --token-file "$out/stories.u16" --split 98,2,0 \
  --micro-batch-size 4 --global-batch-size 16 --train-iters "$iterations" \
  --lr 3e-3 --min-lr 3e-4 --lr-warmup-iters $((iterations / 15)) --lr-decay-style cosine --adam-beta2 0.95 --weight-decay 0.1 \
  --log-interval 2 --moe-per-layer-logging --eval-interval 100 --eval-iters 4 \
  --save "$out/checkpoints" --save-interval 1000 --device cpu --metrics-file "$out/metrics.jsonl"

echo
echo "== what it writes"
"$phalanx" generate --load "$out/checkpoints" --samples 5 --tokens 240 --temperature 0.5 --seed 1 \
  --device cpu --check-stories | tee "$out/sample.txt"

entropy=$(sed -n 's/.*entropy[^0-9]*\([0-9.]*\).*/\1/p' "$out/corpus.txt" | head -1)
"$phalanx" plot --metrics "$out/metrics.jsonl" --output "$out/loss.svg" \
  --title "16 experts on stories and sums" --reference "unigram entropy=$entropy"
"$phalanx" plot --metrics "$out/metrics.jsonl" --output "$out/experts.svg" --expert-load --layer 1 \
  --title "Load of the 16 experts of the second layer"

for file in "$out"/{corpus.txt,metrics.jsonl,sample.txt,loss.svg,experts.svg} \
            "$out/checkpoints/latest_checkpointed_iteration.txt"; do
  [ -s "$file" ] || { echo "demo: $file is missing or empty" >&2; exit 1; }
done

echo
echo "== where it all is"
echo "  loss curve       $out/loss.svg"
echo "  load of experts  $out/experts.svg"
echo "  metrics          $out/metrics.jsonl"
echo "  checkpoint       $out/checkpoints (phalanx generate --load $out/checkpoints --prompt '...')"
