#!/usr/bin/env bash
# Kills a training run with SIGKILL at random moments of saving, over and over, in one folder. After
# every death the checkpoint that the tracker names must be whole and no older than the last one seen,
# and the next run, on another layout, must go on from it. tests/checkpoint/saver_test.cpp does the
# same at every single call that writes, and tests/cli/killed_ranks_test.cpp kills single ranks.
#
#   scripts/crash_suite.sh [RUNS] [PHALANX]        (200 runs by default)
set -euo pipefail
cd "$(dirname "$0")/.."
runs=${1:-200}
phalanx=${2:-build/release/phalanx}
folder=$(mktemp -d "${TMPDIR:-/tmp}/phalanx-crash-XXXXXX")
trap 'rm -rf "$folder"' EXIT
iterations=1000000  # never reached: every run must be alive when its kill comes

model=(--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32
  --max-position-embeddings 32 --position-embedding-type rope --normalization RMSNorm --swiglu
  --disable-bias-linear --vocab-size 512 --mock-data --micro-batch-size 1 --global-batch-size 2
  --lr 1e-3 --lr-decay-style constant --bf16 --device cpu --threads 1 --log-interval 100000
  --save-interval 1 --save-retain-interval 50)

latest() { cat "$folder/saves/latest_checkpointed_iteration.txt" 2>/dev/null || echo 0; }

deaths=0 seen=0 torn=0
for ((run = 1; run <= runs; run++)); do
  # Layouts and kinds of saving take turns: what one writes the next one reads.
  case $((run % 5)) in
    0) layout=() ;;
    1) layout=(--async-save) ;;
    2) layout=(--local-ranks 2 --use-distributed-optimizer) ;;
    3) layout=(--tensor-model-parallel-size 2 --async-save) ;;
    4) layout=(--local-ranks 2 --use-megatron-fsdp --async-save) ;;
  esac
  touch "$folder/started"
  "$phalanx" pretrain "${model[@]}" "${layout[@]}" --train-iters "$iterations" \
    --save "$folder/saves" --load "$folder/saves" >"$folder/log" 2>&1 &
  pid=$!
  # From the first save on, somewhere in the first few.
  for ((i = 0; i < 3000; i++)); do
    if (($(latest) > seen)) || ! kill -0 "$pid" 2>/dev/null; then break; fi
    sleep 0.01
  done
  sleep "0.$(printf '%03d' $((RANDOM % 150)))"
  kill -9 "$pid" 2>/dev/null || true
  status=0
  wait "$pid" 2>/dev/null || status=$?
  if ((status != 137)) || grep -q '^error' "$folder/log"; then
    echo "run $run ended by itself with $status:"; cat "$folder/log"; exit 1
  fi
  deaths=$((deaths + 1))
  now=$(latest)
  if ((now < seen)); then echo "run $run: iteration $now after $seen"; exit 1; fi
  if [ -n "$(find "$folder/saves" -maxdepth 1 -name '*.tmp' -newer "$folder/started")" ]; then torn=$((torn + 1)); fi
  if ((now > 0)) && ! "$phalanx" inspect checkpoint "$folder/saves" --verify >"$folder/verify" 2>&1
  then
    echo "run $run: a torn checkpoint is taken for a good one"; cat "$folder/verify"; exit 1
  fi
  seen=$now
done

end=$((seen + 3))
"$phalanx" pretrain "${model[@]}" --train-iters "$end" --save "$folder/saves" --load "$folder/saves" \
  >"$folder/log" 2>&1
"$phalanx" inspect checkpoint "$folder/saves" --verify
echo "$runs runs, $deaths killed, $torn of them while a checkpoint was being written;" \
  "the last one seen was iteration $seen, and the run went on to $end"
