#!/usr/bin/env bash
# GPT-2 124M on real text: ours beside compiled PyTorch, from the same initial weights on the same samples in the same order,
# in bf16, with evaluations, saves, and a stop and resume in the middle of ours. Text comes from scripts/real_text.sh.
#   benchmarks/real_run.sh prepare TEXT_FOLDER     tokens, initial weights, and a check of the samples' order
#   benchmarks/real_run.sh ours SECONDS RESULTS    stops when the time is over; RESULTS gets the metrics and the log
#   benchmarks/real_run.sh peer SECONDS RESULTS
#   benchmarks/real_run.sh compare RESULTS         a table, and docs/curves/real_run.svg
# MODEL=tiny DEVICE=cpu tries all of it in a minute on a CPU, in fp32 with PyTorch not compiled: losses must then be equal to
# rounding. PHX_PROGRAM names a built program, PYTHON the Python that has PyTorch, WORK the folder in between.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?usage: benchmarks/real_run.sh prepare|ours|peer|compare ...}
shift
model=${MODEL:-gpt2} device=${DEVICE:-cuda} python=${PYTHON:-python3}
work=${WORK:-out/real_run}
program=${PHX_PROGRAM:-build/cuda/phalanx}
seed=1234
case $model in
  gpt2) layers=12 hidden=768 heads=12 ffn=3072 vocab=50304 seq=1024 micro=64 batch=512 iters=${ITERS:-420} warmup=120
        eval_interval=20 eval_iters=2 save_interval=100 lr=6e-4 min_lr=6e-5 tokenizer_size=50257 ;;
  tiny) layers=2 hidden=64 heads=4 ffn=256 vocab=2048 seq=64 micro=4 batch=8 iters=${ITERS:-60} warmup=6
        eval_interval=10 eval_iters=2 save_interval=20 lr=3e-3 min_lr=3e-4 tokenizer_size=2000 ;;
  *) echo "real_run: MODEL is gpt2 or tiny, not $model" >&2; exit 1 ;;
esac
weight_decay=0.1 beta2=0.95

shape=(--num-layers $layers --hidden-size $hidden --num-attention-heads $heads --ffn-hidden-size $ffn
  --seq-length $seq --max-position-embeddings $seq --attention-dropout 0 --hidden-dropout 0 --openai-gelu
  --tokenizer-type NullTokenizer --vocab-size $vocab --make-vocab-size-divisible-by 1 --seed $seed --device "$device")
training=(--train-data-path "$work/train_text_document" --valid-data-path "$work/valid_text_document"
  --micro-batch-size $micro --global-batch-size $batch --train-iters "$iters" --lr $lr --min-lr $min_lr
  --lr-decay-style cosine --lr-warmup-iters $warmup --weight-decay $weight_decay --adam-beta2 $beta2 --clip-grad 1.0
  --eval-interval $eval_interval --eval-iters $eval_iters --log-interval 1
  --save "$work/checkpoints" --save-interval $save_interval --async-save)
precision=(--bf16)
peer=()
if [ "$device" = cpu ]; then
  precision=()
  peer=(--eager --fp32)
fi

prepare() {  # the folder of scripts/real_text.sh
  local text=$1
  mkdir -p "$work"
  # The tokenizer is learned once and kept with the text.
  if [ ! -f "$text/tokenizer_$tokenizer_size/tokenizer.json" ]; then
    [ -f "$work/train.jsonl" ] || zstd -dq --long=27 "$text/train.jsonl.zst" -o "$work/train.jsonl"
    "$program" tokenizer train --input "$work/train.jsonl" --output "$text/tokenizer_$tokenizer_size" --vocab-size $tokenizer_size \
      --pattern gpt2
  fi
  for split in train valid; do
    "$program" preprocess --input "$text/$split.jsonl.zst" --output-prefix "$work/$split" --append-eod \
      --tokenizer-type HuggingFaceTokenizer --tokenizer-model "$text/tokenizer_$tokenizer_size" | tail -1
  done
  # Both sides begin from one file in fp32: what our initialization draws, before any step (the first one has no learning rate).
  rm -rf "$work/initial" "$work/weights" "$work/checkpoints"
  "$program" pretrain "${shape[@]}" --mock-data --micro-batch-size 1 --global-batch-size 1 --train-iters 1 --lr 1e-30 \
    --weight-decay 0 --save "$work/initial" --save-interval 1 | tail -1
  "$program" convert export --native "$work/initial" --hf "$work/weights" --family gpt2 | tail -1
  cat >"$work/run.json" <<JSON
{"model": "$model", "layers": $layers, "hidden": $hidden, "heads": $heads, "ffn": $ffn, "vocab": $vocab, "seq_length": $seq,
 "micro_batch": $micro, "global_batch": $batch, "iters": $iters, "warmup": $warmup, "lr": $lr, "min_lr": $min_lr,
 "weight_decay": $weight_decay, "beta2": $beta2, "eval_interval": $eval_interval, "eval_iters": $eval_iters, "seed": $seed,
 "train": "$work/train_text_document", "valid": "$work/valid_text_document", "weights": "$work/weights"}
JSON
  "$python" benchmarks/real_run.py order --work "$work" --phalanx "$program"
}

ours() {  # seconds, results
  local end=$((SECONDS + $1)) results=$2 pid status load="$work/weights"
  rm -rf "$work/checkpoints" "$results/ours.jsonl" "$results/ours.log"
  cp "$work/run.json" "$results/"
  for stop_at in $((iters * 55 / 100)) 0; do  # a signal in the middle, between two saves; then to the end
    "$program" pretrain "${shape[@]}" "${training[@]}" ${precision[@]+"${precision[@]}"} --load "$load" \
      --metrics-file "$results/ours.jsonl" >>"$results/ours.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
      if [ $SECONDS -ge $end ] || { [ "$stop_at" != 0 ] && grep -q "\"iteration\":$stop_at," "$results/ours.jsonl" 2>/dev/null; }; then
        kill -TERM $pid 2>/dev/null || true
        break
      fi
      sleep 0.2
    done
    status=0
    wait $pid || status=$?
    [ $status = 0 ] || [ $status = 3 ] || { tail -20 "$results/ours.log"; echo "ours: exit status $status"; exit 1; }
    [ $SECONDS -lt $end ] || { echo "ours: the time is over"; break; }
    load="$work/checkpoints"
  done
  grep -E "^saved|warning|products|attention|resum|loaded" "$results/ours.log" || true
  tail -1 "$results/ours.jsonl"
}

compare() {  # results
  local results=$1
  "$python" benchmarks/real_run.py compare "$results/run.json" "$results/ours.jsonl" "$results/peer.jsonl" \
    --tolerance "${TOLERANCE:-0.002}" | tee "$results/table.md"
  "$program" plot --metrics "Phalanx=$results/ours.jsonl" "PyTorch, compiled=$results/peer.jsonl" \
    --output "${CURVE:-docs/curves/real_run.svg}" --title "GPT-2 124M on real text, bf16, one H200"
}

case $what in
  prepare) prepare "${1:?prepare needs the folder of scripts/real_text.sh}" ;;
  ours) mkdir -p "${2:?}" && ours "$1" "$2" ;;
  peer) mkdir -p "${2:?}" && "$python" benchmarks/real_run.py peer --work "$work" --metrics "$2/peer.jsonl" --seconds "$1" \
      --device "$device" ${peer[@]+"${peer[@]}"} ;;
  compare) compare "${1:?compare needs the folder of results}" ;;
  *) echo "real_run: prepare, ours, peer or compare, not $what" >&2; exit 1 ;;
esac
