#!/usr/bin/env bash
# From nothing to a trained model: packages, build, a corpus of stories and sums, a Llama of 1.6 million
# parameters, one to two minutes of training on a CPU, then text that it writes, and its loss curve.
# PHX_PROGRAM=build/release/phalanx takes a program that is there and leaves out packages and build.
set -euo pipefail
cd "$(dirname "$0")/.."
phalanx=${PHX_PROGRAM:-build/release/phalanx}
if [ -z "${PHX_PROGRAM:-}" ]; then
  scripts/setup.sh
  scripts/build.sh release phalanx
fi
out=${PHX_DEMO_OUT:-out/demo}
iterations=${PHX_DEMO_ITERS:-300}
mkdir -p "$out"
# Only what an earlier demo left here goes; anything else in the folder stays.
rm -rf "$out"/{stories.u16,stories.txt,corpus.txt,checkpoints,events,metrics.jsonl,metrics.jsonl.old,sample.txt,loss.svg}

echo
echo "== a corpus from a small grammar"
"$phalanx" corpus --output "$out/stories.u16" --megabytes 4 --seed 1 | tee "$out/corpus.txt"
"$phalanx" corpus --output "$out/stories.txt" --megabytes 0.01 --seed 1 >/dev/null
head -c 400 "$out/stories.txt"; echo " ..."

echo
echo "== training"
"$phalanx" pretrain \
  --num-layers 4 --hidden-size 192 --num-attention-heads 6 --group-query-attention --num-query-groups 2 \
  --ffn-hidden-size 512 --swiglu --normalization RMSNorm --disable-bias-linear \
  --position-embedding-type rope --seq-length 256 --max-position-embeddings 2048 \
  --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.03 \
  --tokenizer-type ByteTokenizer --make-vocab-size-divisible-by 1 --token-file "$out/stories.u16" --split 98,2,0 \
  --micro-batch-size 8 --global-batch-size 16 --train-iters "$iterations" \
  --lr 3e-3 --min-lr 3e-4 --lr-warmup-iters $((iterations / 15)) --lr-decay-style cosine --adam-beta2 0.95 --weight-decay 0.1 \
  --log-interval 50 --eval-interval 100 --eval-iters 4 \
  --save "$out/checkpoints" --save-interval 1000 --device cpu \
  --tensorboard-dir "$out/events" --metrics-file "$out/metrics.jsonl"

echo
echo "== what it writes"
"$phalanx" generate --load "$out/checkpoints" --samples 5 --tokens 240 --temperature 0.5 --seed 1 \
  --device cpu --check-stories | tee "$out/sample.txt"

entropy=$(sed -n 's/.*entropy[^0-9]*\([0-9.]*\).*/\1/p' "$out/corpus.txt" | head -1)
"$phalanx" plot --metrics "$out/metrics.jsonl" --output "$out/loss.svg" \
  --title "A Llama of 1.6 million parameters on stories and sums" --reference "unigram entropy=$entropy"

for file in "$out"/{corpus.txt,metrics.jsonl,sample.txt,loss.svg} "$out"/events/* \
            "$out/checkpoints/latest_checkpointed_iteration.txt"; do
  [ -s "$file" ] || { echo "demo: $file is missing or empty" >&2; exit 1; }
done

echo
echo "== where it all is"
echo "  loss curve     $out/loss.svg"
echo "  metrics        $out/metrics.jsonl"
echo "  events         $out/events      (tensorboard --logdir $out/events)"
echo "  checkpoint     $out/checkpoints (phalanx generate --load $out/checkpoints --prompt '...')"
