#!/usr/bin/env bash
# Installs a build into a temporary prefix with every header of docs/library.md, builds the programs under examples/ against
# it alone, and runs them:
# an own model is proved with TP 2 x PP 2, with CP 2 and with FSDP in fp64, planned, trained, saved and resumed; another program
# reads the checkpoint; a third one streams the weights of a Llama under Hugging Face's names.
# usage: scripts/check_library.sh [BUILD]    (default: build/release, where `phalanx` is built)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=$(realpath "${1:-build/release}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; exit 1; }
# Every header that docs/library.md calls public is there.
mapfile -t headers < <(grep -o '`phalanx/[^` ]*\.h`' docs/library.md | tr -d '`' | sort -u)
for header in "${headers[@]}"; do
  compgen -G "$work/prefix/include/$header" >/dev/null || { echo "error: docs/library.md lists $header, which is not installed"; exit 1; }
done
[ ${#headers[@]} -ge 15 ] || { echo "error: docs/library.md lists ${#headers[@]} headers only"; exit 1; }
# Copies, so that nothing is found in the tree by accident.
cp -r "$root/examples" "$work/examples"
cd "$work"
for example in own_model print_checkpoint stream_weights; do
  # Optimised little: what takes time is in the library.
  cmake -S "examples/$example" -B "built/$example" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
        -DCMAKE_PREFIX_PATH="$work/prefix" >"$example.log" 2>&1 || { cat "$example.log"; exit 1; }
  cmake --build "built/$example" >"$example.log" 2>&1 || { cat "$example.log"; exit 1; }
done

fail() { echo "error: $1"; shift; cat "$@"; exit 1; }
run=(--model diff --diff-lambda 0.7 --num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16
     --max-position-embeddings 16 --position-embedding-type rope --attention-dropout 0 --vocab-size 64 --micro-batch-size 1
     --global-batch-size 4 --lr 1e-2 --lr-decay-style restarting-cosine --lr-restarts 1 --device cpu
     --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2)
own=built/own_model/own_model

"$own" pretrain --help >help.txt
grep -q -- --diff-lambda help.txt && grep -q -- --walk-strides help.txt && grep -q restarting-cosine help.txt ||
  fail "--help does not know the program's own flags" help.txt
"$own" verify "${run[@]}" --train-iters 4 --recompute-granularity selective --recompute-modules diff_attention >verify.txt 2>&1 || fail "verify" verify.txt
for layout in "--context-parallel-size 2" "--use-megatron-fsdp --world-size 8"; do
  "$own" verify "${run[@]}" $layout --train-iters 4 >layout.txt 2>&1 || fail "verify $layout" layout.txt
done
"$own" plan "${run[@]}" --train-iters 4 --dataset walks >plan.txt 2>&1 || fail "plan" plan.txt

# 8 iterations in one go, and the same with a stop after 4 and another layout behind it.
train() { "$own" pretrain "${run[@]}" --dataset walks --walk-strides 3 --train-iters 8 --fp64 --log-interval 1 "$@"; }
train --save whole --save-interval 4 --metrics-file whole.jsonl >whole.txt 2>&1 || fail "pretrain" whole.txt
cp -r whole resumed
rm -rf resumed/iter_0000008
echo 4 >resumed/latest_checkpointed_iteration.txt
train --load resumed --save resumed --save-interval 4 --metrics-file resumed.jsonl \
      --tensor-model-parallel-size 1 >resumed.txt 2>&1 || fail "pretrain after a stop" resumed.txt
train --load resumed --diff-lambda 0.5 >other.txt 2>&1 && fail "another --diff-lambda was taken on resume" other.txt
grep -q -- '--diff-lambda: 0.7 in the checkpoint, 0.5 now' other.txt || fail "the difference is not named" other.txt

print=built/print_checkpoint/print_checkpoint
name=decoder.layers.1.diff_attention.linear_qkv_2.weight
"$print" whole >tensors.txt || fail "print_checkpoint" tensors.txt
grep -q "iteration 8" tensors.txt && grep -q "$name F64 \[96, 32\]" tensors.txt || fail "print_checkpoint lists" tensors.txt
for folder in whole resumed; do
  "$print" "$folder" "$name" >"$folder.values" || fail "print_checkpoint" "$folder.values"
done
cmp -s whole.values resumed.values || fail "the resumed run has other weights" whole.values resumed.values
# The weights of a run of the installed program, and what an export of them has.
"$work/prefix/bin/phalanx" pretrain --num-layers 2 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 48 --swiglu \
  --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --seq-length 16 --max-position-embeddings 16 \
  --attention-dropout 0 --hidden-dropout 0 --vocab-size 64 --untie-embeddings-and-output-weights --mock-data --device cpu \
  --micro-batch-size 1 --global-batch-size 2 --lr 1e-2 --train-iters 2 --save llama --save-interval 2 >llama.txt 2>&1 || fail "pretrain of a Llama" llama.txt
built/stream_weights/stream_weights llama >stream.txt || fail "stream_weights" stream.txt
grep -q '^model.layers.1.mlp.gate_proj.weight F32 \[48, 32\]' stream.txt && grep -q '^a llama model after iteration 2' stream.txt ||
  fail "stream_weights does not give a Llama's tensors" stream.txt
"$work/prefix/bin/phalanx" convert export --native llama --hf llama_hf >export.txt 2>&1 || fail "convert export" export.txt
[ "$(grep -c ' F32 \[' stream.txt)" = "$(head -c 100000 llama_hf/model.safetensors | tr -d '\0' | grep -ao '"data_offsets"' | wc -l)" ] ||
  fail "stream_weights gives another number of tensors than an export has" stream.txt export.txt

grep 'lm loss' whole.txt | tail -1
tail -n 3 verify.txt
echo "the installed library builds and trains programs of others"
