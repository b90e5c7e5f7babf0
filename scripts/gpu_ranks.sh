#!/usr/bin/env bash
# Several NCCL ranks on one GPU (slow, but the real code path): every layout trains the same small model in bf16 on
# the same tokens as one rank, and its losses must agree within rounding.
#   scripts/gpu_ranks.sh OUT_FOLDER [layout...]
# What a layout is compared with is the first word of its name: experts_ep2 with experts, deepseek_tp2 with deepseek, any other
# with one. PHX_JOBS layouts run at a time (4 unless told), PHX_PROGRAM names a built program.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
phalanx=${PHX_PROGRAM:-build/cuda/phalanx}
shift
wanted=" $* "
mkdir -p "$out"
rm -f "$out"/*.jsonl "$out"/*.failed
export PHX_SHARE_GPU=1

flags=(--num-layers 4 --hidden-size 512 --num-attention-heads 8
       --ffn-hidden-size 1408 --swiglu --normalization RMSNorm --disable-bias-linear --qk-layernorm
       --position-embedding-type rope --seq-length 512 --max-position-embeddings 512
       --attention-dropout 0 --hidden-dropout 0.1 --vocab-size 4001 --mock-data
       --micro-batch-size 2 --global-batch-size 16 --train-iters 12 --lr 1e-3 --lr-warmup-iters 2 --bf16 --device cuda
       --log-interval 4 --eval-interval 6 --eval-iters 1 --distributed-timeout-minutes 1)

base_of() {  # name
  case $1 in experts*) echo experts ;; deepseek*) echo deepseek ;; *) echo one ;; esac
}

is_wanted() {  # name
  [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]] && return
  local layout
  for layout in $wanted; do
    if [ "$(base_of "$layout")" = "$1" ]; then return 0; fi
  done
  return 1
}

train() {  # name, ranks, flags...
  local name=$1 ranks=$2
  shift 2
  is_wanted "$name" || return 0
  while [ "$(jobs -rp | wc -l)" -ge "${PHX_JOBS:-4}" ]; do sleep 0.1; done
  {
    start=$SECONDS
    run=("$phalanx" pretrain)
    [ "$ranks" = 1 ] || run=(timeout 120 "$phalanx" launch --nproc "$ranks" pretrain)
    [ "$(base_of "$name")" = deepseek ] || run+=(--group-query-attention --num-query-groups 2)
    if "${run[@]}" "${flags[@]}" --metrics-file "$out/$name.jsonl" "$@" >"$out/$name.log" 2>&1; then
      echo "$name: $((SECONDS - start)) s"
    else
      touch "$out/$name.failed"
      echo "$name failed:"
      tail -20 "$out/$name.log"
    fi
  } &
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

fsdp=(--use-megatron-fsdp)
train fsdp2 2 "${fsdp[@]}"
train fsdp2_gradients 2 "${fsdp[@]}" --data-parallel-sharding-strategy optim_grads
train fsdp4 4 "${fsdp[@]}" --suggested-communication-unit-size 4000000
train fsdp4_hybrid 4 "${fsdp[@]}" --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim
train fsdp2_tp2 4 "${fsdp[@]}" --tensor-model-parallel-size 2 --sequence-parallel
train fsdp2_pp2 4 "${fsdp[@]}" --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2

train cp2_ring 2 --context-parallel-size 2
train cp2_gather 2 --context-parallel-size 2 --cp-comm-type all_gather
train cp2_heads 2 --context-parallel-size 2 --cp-comm-type a2a
train cp4_ring 4 --context-parallel-size 4
train cp4_both 4 --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2
train cp2_by_layer_tp2 4 --context-parallel-size 2 --cp-comm-type p2p all_gather p2p all_gather --tensor-model-parallel-size 2
train cp2_fsdp2 4 --context-parallel-size 2 "${fsdp[@]}"
train cp2_pp2 4 --context-parallel-size 2 --pipeline-model-parallel-size 2

# The same model with 8 experts in each layer, of which a token takes 2.
experts=(--num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 704 --moe-aux-loss-coeff 1e-2)
to_all=(--moe-token-dispatcher-type alltoall)
train experts 1 "${experts[@]}"
train experts_ep2 2 "${experts[@]}" --expert-model-parallel-size 2
train experts_ep2_all 2 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2
train experts_ep4_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 4 --use-distributed-optimizer
train experts_ep2_tp2 4 "${experts[@]}" --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel
train experts_ep2_tp2_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel
train experts_ep2_pp2_all 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2 --pipeline-model-parallel-size 2
train experts_ep2_fsdp 4 "${experts[@]}" "${to_all[@]}" --expert-model-parallel-size 2 "${fsdp[@]}"

# DeepSeek's parts: latent attention, tokens ahead, groups of experts with a bias. `deepseek_cpu` is the same on the CPU.
deepseek=("${experts[@]}" --multi-latent-attention --q-lora-rank 128 --kv-lora-rank 64 --qk-head-dim 64 --qk-pos-emb-head-dim 32
          --v-head-dim 64 --mtp-num-layers 1 --moe-router-score-function sigmoid --moe-router-enable-expert-bias
          --moe-router-num-groups 4 --moe-router-group-topk 2 --moe-shared-expert-intermediate-size 704)
train deepseek 1 "${deepseek[@]}"
train deepseek_cpu 1 "${deepseek[@]}" --device cpu
train deepseek_tp2 2 "${deepseek[@]}" --tensor-model-parallel-size 2 --sequence-parallel
train deepseek_ep2_pp2 4 "${deepseek[@]}" "${to_all[@]}" --expert-model-parallel-size 2 --pipeline-model-parallel-size 2
train deepseek_cp2 2 "${deepseek[@]}" --context-parallel-size 2
wait

python3 - "$out" <<'PY'
import glob, json, os, sys
def losses(path):
    rows = [json.loads(line) for line in open(path)]
    return [(r["lm loss"], r["grad norm"]) for r in rows if "grad norm" in r]
folder = sys.argv[1]
bases = {name: losses(os.path.join(folder, name + ".jsonl")) for name in ("one", "experts", "deepseek")
         if os.path.exists(os.path.join(folder, name + ".jsonl"))}
# A bf16 activation has 8 bits: 2^-9 = 0.2% a rounding. The mean of 8192 token losses is far better than one of them;
# 0.1% of the loss and 3% of the norm leave room for twelve steps that begin to drift apart. With experts a rounding may
# also send a token whose scores are close to another expert, which rounds everything behind it anew: twice as much.
bad = bool(glob.glob(os.path.join(folder, "*.failed")))
for path in sorted(glob.glob(os.path.join(folder, "*.jsonl"))):
    name = os.path.basename(path)[:-6]
    if name in bases: continue
    word = name.split("_")[0]
    got, one = losses(path), bases[word if word in bases else "one"]
    loss = max(abs(a[0] - b[0]) / b[0] for a, b in zip(got, one))
    norm = max(abs(a[1] - b[1]) / b[1] for a, b in zip(got, one))
    limit = 2 if word in ("experts", "deepseek") else 1
    good = len(got) == len(one) and loss < 1e-3 * limit and norm < 3e-2 * limit
    bad |= not good
    print(f"{name:20s} worst difference of {len(got)} steps: loss {loss:.2e}, gradient norm {norm:.2e}", "" if good else "TOO LARGE")
sys.exit(bad)
PY
