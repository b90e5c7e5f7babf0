#!/usr/bin/env bash
# Makes a table of tuned products for this GPU and its cuBLASLt, with the shapes of common models at usual numbers of tokens.
# The file goes into src/kernels/cuda/tables, and with the next build into the program.
#   scripts/tune_tables.sh FOLDER [seconds]     stops after the model during which the time ran out; a second call goes on
# --list as the third word prints the products without a GPU. PHX_PROGRAM names the program. LD_LIBRARY_PATH chooses the library.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?usage: scripts/tune_tables.sh FOLDER [seconds]} seconds=${2:-100000}
list=${3:+--list}
program=${PHX_PROGRAM:-build/cuda/phalanx}
mkdir -p "$out"
llama=(--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --group-query-attention)
gpt2=(--vocab-size 50304 --seq-length 1024)

tune() {  # name, flags of a run; a layer has all products of many
  local name=$1
  shift
  if [ $SECONDS -ge "$seconds" ]; then
    echo "$name: left out, the time is over"
    return
  fi
  local start=$SECONDS
  "$program" tune "$@" --num-layers 1 --max-position-embeddings 131072 --attention-dropout 0 --hidden-dropout 0 --bf16 --only-new \
    --output "$out/table.json" $list >"$out/$name.txt" || { tail -5 "$out/$name.txt"; exit 1; }
  echo "$name: $(tail -1 "$out/$name.txt") ($((SECONDS - start)) s)"
}

# The cases of bench_gpu_train first.
tune gpt2s "${llama[@]}" --hidden-size 768 --num-attention-heads 12 --num-query-groups 12 --ffn-hidden-size 3072 \
  --vocab-size 50304 --seq-length 1024 --micro-batch-size 64
tune gpt2_124m "${gpt2[@]}" --hidden-size 768 --num-attention-heads 12 --micro-batch-size 64
llama1b=("${llama[@]}" --hidden-size 2048 --num-attention-heads 32 --num-query-groups 8 --ffn-hidden-size 8192 --vocab-size 128256)
tune llama1b "${llama1b[@]}" --seq-length 4096 --micro-batch-size 4
llama8b=("${llama[@]}" --hidden-size 4096 --num-attention-heads 32 --num-query-groups 8 --ffn-hidden-size 14336
  --vocab-size 128256 --untie-embeddings-and-output-weights)
tune llama8b_8192x2 "${llama8b[@]}" --seq-length 8192 --micro-batch-size 2
tune llama8b_8192x1 "${llama8b[@]}" --seq-length 8192 --micro-batch-size 1
tune llama70b_tp8 "${llama[@]}" --hidden-size 8192 --num-attention-heads 64 --num-query-groups 8 --ffn-hidden-size 28672 \
  --vocab-size 128256 --untie-embeddings-and-output-weights --seq-length 8192 --micro-batch-size 1 \
  --tensor-model-parallel-size 8 --sequence-parallel
tune qwen25_7b "${llama[@]}" --add-qkv-bias --hidden-size 3584 --num-attention-heads 28 --num-query-groups 4 --ffn-hidden-size 18944 \
  --vocab-size 152064 --untie-embeddings-and-output-weights --seq-length 4096 --micro-batch-size 2
tune llama3b "${llama[@]}" --hidden-size 3072 --num-attention-heads 24 --num-query-groups 8 --ffn-hidden-size 8192 \
  --vocab-size 128256 --seq-length 4096 --micro-batch-size 2
tune gpt2_355m "${gpt2[@]}" --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 32
tune gpt2_774m "${gpt2[@]}" --hidden-size 1280 --num-attention-heads 20 --micro-batch-size 16
tune gpt2_1558m "${gpt2[@]}" --hidden-size 1600 --num-attention-heads 25 --micro-batch-size 16
tune llama1b_8192x1 "${llama1b[@]}" --seq-length 8192 --micro-batch-size 1
tune llama8b_tp2 "${llama8b[@]}" --seq-length 8192 --micro-batch-size 1 --tensor-model-parallel-size 2 --sequence-parallel
tune llama8b_4096x1 "${llama8b[@]}" --seq-length 4096 --micro-batch-size 1
tune gpt2_124m_x16 "${gpt2[@]}" --hidden-size 768 --num-attention-heads 12 --micro-batch-size 16
[ -n "$list" ] && exit
python3 - "$out" <<'PY'
import json, pathlib, re, sys
out = pathlib.Path(sys.argv[1])
table = json.loads((out / "table.json").read_text())
name = re.sub(r"[^A-Za-z0-9]", "_", table["gpu"]) + f"_{table['cublaslt']}.json"
(out / name).write_text((out / "table.json").read_text())
first, best = (sum(product["ms"][i] for product in table["products"]) for i in (0, 1))
print(f"{out / name}: {len(table['products'])} products; one of each takes {best:.1f} ms, {first:.1f} by the library's choice "
      f"({100 * (1 - best / first):.1f}% less)")
PY
