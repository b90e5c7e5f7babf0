#!/usr/bin/env bash
# From the start of the process to the end of the first step, and to its exit: `llama1b` on one GPU. Cold is the
# first start on the machine, with libraries still on the disk and products not tuned; then as often as asked
# with the table of `phalanx tune`.
#   benchmarks/first_step.sh [GEMM_TABLE] [times]
set -euo pipefail
cd "$(dirname "$0")/.."
table=${1:-none}
times=${2:-3}
start() {  # table
  local begin end log
  begin=$(date +%s%N)
  log=$(build/cuda/phalanx pretrain --num-layers 16 --hidden-size 2048 --num-attention-heads 32 --group-query-attention \
    --num-query-groups 8 --ffn-hidden-size 8192 --swiglu --normalization RMSNorm --disable-bias-linear \
    --position-embedding-type rope --seq-length 4096 --max-position-embeddings 4096 --attention-dropout 0 --hidden-dropout 0 \
    --mock-data --tokenizer-type NullTokenizer --vocab-size 128255 --micro-batch-size 4 --global-batch-size 4 --train-iters 1 \
    --lr 1e-4 --bf16 --log-interval 1 --device cuda --gemm-table "$1" 2>&1)
  end=$(date +%s%N)
  local stamp
  stamp=$(sed -n 's/^ \[\([0-9: .-]*\)\] iteration  *1\/.*/\1/p' <<<"$log" | head -1)
  [ -n "$stamp" ] || { echo "$log"; exit 1; }
  awk -v a="$begin" -v b="$(date -d "$stamp" +%s%N)" -v c="$end" \
    'BEGIN { printf "first step done after %.2f s, process over after %.2f s\n", (b - a) / 1e9, (c - a) / 1e9 }'
}
echo "cold, no table:  $(start none)"
for ((i = 0; i < times; ++i)); do echo "again, table $(basename "$table"): $(start "$table")"; done
