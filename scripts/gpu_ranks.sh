#!/usr/bin/env bash
# Several NCCL ranks on one GPU (slow, but the real code path): every layout trains the same small model in bf16 on
# the same tokens as one rank, and its losses must agree within rounding. scripts/gpu_ranks.sh OUT_FOLDER [layout...]
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
phalanx=build/cuda/phalanx
shift
wanted=" $* "
mkdir -p "$out"
export PHX_SHARE_GPU=1

flags=(--num-layers 4 --hidden-size 512 --num-attention-heads 8 --group-query-attention --num-query-groups 2
       --ffn-hidden-size 1408 --swiglu --normalization RMSNorm --disable-bias-linear --qk-layernorm
       --position-embedding-type rope --seq-length 512 --max-position-embeddings 512
       --attention-dropout 0 --hidden-dropout 0.1 --vocab-size 4001 --mock-data
       --micro-batch-size 2 --global-batch-size 16 --train-iters 12 --lr 1e-3 --lr-warmup-iters 2 --bf16 --device cuda
       --log-interval 4 --eval-interval 6 --eval-iters 1 --distributed-timeout-minutes 1)

train() {  # name, ranks, flags...
  local name=$1 ranks=$2 start
  shift 2
  [ "$wanted" = "  " ] || [[ $wanted == *" $name "* ]] || { [ "$name" = one ] && [[ $wanted != "  experts"* ]]; } ||
    { [ "$name" = experts_one ] && [[ $wanted == *experts* ]]; } || return 0
  start=$(date +%s)
  if [ "$ranks" = 1 ]; then
    $phalanx pretrain "${flags[@]}" --metrics-file "$out/$name.jsonl" "$@" > "$out/$name.log" 2>&1
  else
    timeout 120 $phalanx launch --nproc "$ranks" pretrain "${flags[@]}" --metrics-file "$out/$name.jsonl" "$@" \
      > "$out/$name.log" 2>&1
  fi || { echo "$name failed:"; tail -20 "$out/$name.log"; return 1; }
  echo "$name: $(($(date +%s) - start)) s"
}

train one 1
train tp2 2 --tensor-model-parallel-size 2
train tp2_sp 2 --tensor-model-parallel-size 2 --sequence-parallel
train tp2_sp_overlap 2 --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap
train tp2_overlap 2 --tensor-model-parallel-size 2 --tp-comm-overlap
train tp4_sp 4 --tensor-model-parallel-size 4 --sequence-parallel
train pp2 2 --pipeline-model-parallel-size 2
train pp2_vpp2 2 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2
train pp2_zb 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1
train dp2_zero1 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 2000000
train tp2_pp2 4 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2
train tp2_dp2 4 --tensor-model-parallel-size 2 --use-distributed-optimizer

# The same model with 8 experts in each layer, of which a token takes 2; its layouts are compared with experts_one.
experts=(--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 704 --moe-aux-loss-coeff 1e-2)
to_all=(--moe-token-dispatcher-type alltoall)
train experts_one 1 "${experts[@]}"
train experts_ep2 2 "${experts[@]}" --expert-model-parallel-size 2
train experts_ep2_all 2 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2
train experts_ep4_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 4 --use-distributed-optimizer
train experts_ep2_tp2 4 "${experts[@]}" --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel
train experts_ep2_tp2_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel
train experts_ep2_pp2_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2 --pipeline-model-parallel-size 2

python3 - "$out" <<'PY'
import glob, json, os, sys
def losses(path):
    rows = [json.loads(line) for line in open(path)]
    return [(r["lm loss"], r["grad norm"]) for r in rows if "grad norm" in r]
folder = sys.argv[1]
bases = {name: losses(os.path.join(folder, name + ".jsonl")) for name in ("one", "experts_one")
         if os.path.exists(os.path.join(folder, name + ".jsonl"))}
# A bf16 activation has 8 bits: 2^-9 = 0.2% a rounding. The mean of 8192 token losses is far better than one of them;
# 0.1% of the loss and 3% of the norm leave room for twelve steps that begin to drift apart.
bad = False
for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
    name = os.path.basename(path)[:-6]
    if name in bases: continue
    got, one = losses(path), bases["experts_one" if name.startswith("experts") else "one"]
    loss = max(abs(a[0] - b[0]) / b[0] for a, b in zip(got, one))
    norm = max(abs(a[1] - b[1]) / b[1] for a, b in zip(got, one))
    good = len(got) == len(one) and loss < 1e-3 and norm < 3e-2
    bad |= not good
    print(f"{name:20s} worst difference of {len(got)} steps: loss {loss:.2e}, gradient norm {norm:.2e}", "" if good else "TOO LARGE")
sys.exit(bad)
PY
