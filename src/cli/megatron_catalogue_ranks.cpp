// Parallelism and communication. What only tunes the traffic between ranks changes nothing and is
// taken; kinds of parallelism that are not here are refused.
#include "phalanx/cli/megatron_catalogue.h"

namespace phx {

std::span<const CatalogueGroup> rank_catalogue() {
  static const CatalogueGroup groups[] = {
      {.kind = kImplied,
       .reason = "it tunes the traffic between ranks in ways that this program does not have, or "
                 "always has, and changes no result",
       .switches =
           "overlap-param-gather-with-optimizer-step "
           "overlap-p2p-communication-warmup-flush "
           "defer-embedding-wgrad-compute disable-gloo-process-groups use-sharp "
           "ddp-pad-buckets-for-high-nccl-busbw ddp-average-in-collective "
           "no-align-grad-reduce disable-align-grad-reduce "
           "no-align-param-gather use-nccl-ub disable-symmetric-registration "
           "create-all-gather-group disable-tp-comm-bulk-wgrad "
           "disable-tp-comm-bulk-dgrad disable-tp-comm-overlap-ag disable-tp-comm-overlap-rs "
           "disable-tp-comm-split-ag disable-tp-comm-split-rs no-tp-comm-bulk-dgrad "
           "no-tp-comm-bulk-wgrad no-tp-comm-overlap-ag no-tp-comm-overlap-rs "
           "no-tp-comm-split-ag no-tp-comm-split-rs no-clone-scatter-output-in-embedding "
           "disable-clone-scatter-output-in-embedding "
           "tp-comm-overlap-rs-dgrad distribute-saved-activations "
           "no-use-layer-wise-param-layout no-async-tensor-model-parallel-allreduce "
           "no-contiguous-buffers-in-local-ddp no-scatter-gather-tensors-in-pipeline "
           "use-ring-exchange-p2p lazy-mpu-init "
           "fsdp-db-use-persist-buf-on-alloc-fail "
           "megatron-fsdp-enable-fine-grained-param-gather "
           "megatron-fsdp-max-pool-double-buffer fsdp-double-buffer fsdp-manual-registration",
       .values = "wgrad-deferral-limit pipeline-model-parallel-comm-backend distributed-backend "
                 "distributed-timeout-seconds-after-init "
                 "nccl-communicator-config-path sharp-enabled-group ddp-num-buckets "
                 "tp-comm-overlap-cfg tp-comm-bootstrap-backend DDP-impl local-rank "
                 "symmetric-ar-type megatron-fsdp-version",
       .lists = "high-priority-stream-groups"},
      {.kind = kRefused,
       .reason = "this kind of parallelism is not in this build yet",
       .hint = "use --tensor-model-parallel-size, --pipeline-model-parallel-size and data "
               "parallelism; `phalanx plan` says what a layout takes",
       .switches = "hybrid-context-parallel fake-process-group data-parallel-random-init "
                   "gtp-expert-remat-nccl-ub gtp-remat-nccl-ub "
                   "gtp-remat-reduce-scatter-with-fp32-accumulation",
       .values = "max-seqlen-per-dp-cp-rank tensor-parallel-num-weight-shards=1 "
                 "expert-tensor-parallel-num-weight-shards=1 "
                 "transformer-pipeline-model-parallel-size=1 "
                 "check-weight-hash-across-dp-replicas-interval",
       .lists = "gtp-remat-opt-in-modules"},
      {.kind = kRefused,
       .reason = "gradients have one type: fp32, or bf16 with --grad-reduce-in-bf16",
       .hint = "leave it out, and --grad-reduce-in-bf16 too",
       .switches = "ddp-reduce-scatter-with-fp32-accumulation",
       .lists = "ddp-param-name-patterns-for-fp32-local-accumulation"},
      {.kind = kRefused,
       .reason = "this is the old name of the tensor-parallel size",
       .hint = "use --tensor-model-parallel-size",
       .values = "model-parallel-size"},
      {.kind = kRefused,
       .reason = "overlap of expert traffic and compute is not in this build yet",
       .hint = "leave it out",
       .switches =
           "high-priority-a2a-comm-stream overlap-moe-expert-parallel-comm delay-wgrad-compute "
           "overlap-dispatch-backward-with-experts-wgrad "
           "ep-overlap-early-attn-memory-release"},
      {.kind = kRefused,
       .reason = "loading accounts for every tensor, in fsdp_dtensor folders too",
       .hint = "leave it out; --finetune takes the weights alone",
       .switches = "no-strict-fsdp-dtensor-load disable-strict-fsdp-dtensor-load"},
      {.kind = kRefused,
       .reason = "weights are sharded within a group of HSDP alone; the optimizer state may be cut "
                 "over the groups, too",
       .hint = "use --outer-dp-sharding-strategy optim",
       .switches = "enable-full-sharding-in-hsdp"},
      {.kind = kRefused,
       .reason =
           "sharded weights have fp32 masters, and their gradients are summed and kept in the "
           "type of main gradients",
       .hint = "leave it out; --main-grads-dtype or --grad-reduce-in-bf16 choose that type",
       .values = "megatron-fsdp-main-params-dtype=fp32 megatron-fsdp-main-grads-dtype=auto "
                 "megatron-fsdp-grad-comm-dtype=auto"},
      {.kind = kRefused,
       .reason = "there is no FP8 in this build yet",
       .hint = "leave it out",
       .switches = "keep-fp8-transpose-cache"},
      {.kind = kImplied,
       .reason = "a rank makes only the parts of the weights that it keeps, always",
       .switches = "init-model-with-meta-device"},
      {.kind = kRefused,
       .reason = "results are not computed twice to compare them in this build",
       .hint = "leave it out; a loss or norm that is not finite is always told",
       .switches = "check-for-spiky-loss check-for-large-grads",
       .values = "rerun-mode=disabled error-injection-rate=0 error-injection-type"},
      {.kind = kRefused,
       .reason = "Megatron's watchdogs, restarts and fault injection are not in this build; waits "
                 "between ranks have a time-out and name who did not come",
       .hint = "use phalanx launch --max-restarts, and --distributed-timeout-minutes",
       .switches = "flight-recorder-include-stack-trace no-flight-recorder-dump-on-timeout "
                   "disable-flight-recorder-dump-on-timeout "
                   "no-flight-recorder-extra-dump-on-exec "
                   "disable-flight-recorder-extra-dump-on-exec "
                   "no-flight-recorder-include-only-active "
                   "disable-flight-recorder-include-only-active log-straggler "
                   "disable-straggler-on-startup enable-ft-package "
                   "calc-ft-timeouts inprocess-restart adlr-autoresume inprocess-empty-cuda-cache",
       .values = "straggler-ctrlr-port straggler-minmax-count ft-num-warmup-iters "
                 "inprocess-active-world-size inprocess-max-iterations inprocess-granularity "
                 "inprocess-soft-timeout inprocess-hard-timeout inprocess-heartbeat-interval "
                 "inprocess-heartbeat-timeout inprocess-barrier-timeout "
                 "inprocess-completion-timeout inprocess-monitor-thread-interval "
                 "inprocess-monitor-process-interval inprocess-progress-watchdog-interval "
                 "inprocess-last-call-wait inprocess-termination-grace-time "
                 "adlr-autoresume-interval fault-injector-num-ranks fault-injector-fault-delay "
                 "fault-injector-mtti-seconds fault-injector-offset-seconds "
                 "fault-injector-delay-start-iteration fault-injector-seed fault-injector-ranks "
                 "fault-injector-fault-types fault-injector-fault-probabilities "
                 "flight-recorder-dump-path flight-recorder-trace-buffer-size "
                 "gpu-sniff-test-interval"},
  };
  return groups;
}

}  // namespace phx
