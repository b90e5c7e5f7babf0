// The rest of a run: batches, numbers, optimizers, memory, data, checkpoints, logs.
#include "phalanx/cli/megatron_catalogue.h"

namespace phx {

std::span<const CatalogueGroup> run_catalogue() {
  static const CatalogueGroup groups[] = {
      // Batches and the loop.
      {.kind = kImplied,
       .reason = "the loss is the sum over the global batch divided by its tokens, unless "
                 "--loss-average says otherwise",
       .switches = "calculate-per-token-loss"},
      {.kind = kImplied,
       .reason = "Megatron ignores it as well: the batch has its full size from the start",
       .lists = "rampup-batch-size"},
      {.kind = kImplied,
       .reason = "there is no garbage collector and no cache of device memory to empty",
       .switches = "manual-gc no-manual-gc-eval disable-manual-gc-eval",
       .values = "manual-gc-interval empty-unused-memory-level train-sync-interval"},
      {.kind = kRefused,
       .reason = "evaluation has the micro-batches and the largest global batch of training",
       .hint = "use --micro-batch-size and --global-batch-size",
       .values = "batch-size eval-global-batch-size eval-micro-batch-size"},
      {.kind = kRefused,
       .reason = "iterations cannot be skipped in this build",
       .hint = "leave it out; a step whose norm is not finite is skipped by itself",
       .values = "result-rejected-tracker-filename",
       .lists = "iterations-to-skip"},
      {.kind = kRefused,
       .reason = "it has another name now",
       .hint = "use --lr-warmup-fraction, or --recompute-granularity with its companions",
       .switches = "checkpoint-activations",
       .values = "warmup checkpoint-num-layers"},
      {.kind = kRefused,
       .reason = "SIGINT, SIGTERM, SIGUSR1 and SIGHUP are the signals that are listened to",
       .hint = "leave it out",
       .values = "exit-signal=SIGTERM|SIGINT|SIGUSR1|SIGHUP"},
      {.kind = kImplied,
       .reason = "SIGINT, SIGTERM, SIGUSR1 and SIGHUP always save and stop, with status 3",
       .switches = "exit-signal-handler exit-signal-handler-for-training "
                   "exit-signal-handler-for-dataloader"},
      {.kind = kRefused,
       .reason = "CUDA graphs are not in this build yet",
       .hint = "leave it out",
       .switches = "optimizer-cuda-graph enable-cuda-graph external-cuda-graph",
       .values = "cuda-graph-impl=none cuda-graph-warmup-steps",
       .lists = "cuda-graph-modules cuda-graph-scope"},
      {.kind = kRefused,
       .reason = "this mode is not in this build",
       .hint = "leave it out",
       .switches = "freeze-all-layers test-mode",
       .values = "mlp-chunks-for-prefill=1 start-eval-at-iter=0"},

      // Numbers.
      {.kind = kImplied,
       .reason = "gradients are summed in fp32 unless told otherwise, whatever the weights have",
       .switches = "accumulate-allreduce-grads-in-fp32"},
      {.kind = kRefused,
       .reason = "masters are fp32, and take 2 bytes beside a bf16 weight",
       .hint = "leave it out",
       .values = "main-params-dtype=fp32"},
      {.kind = kRefused,
       .reason = "training in 8 or 4 bits is not in this build yet",
       .hint = "use --bf16",
       .switches =
           "no-fp8-wgrad disable-fp8-wgrad fp8-param-gather reuse-grad-buf-for-mxfp8-param-ag "
           "fp8-output-proj first-last-layers-bf16 fp4-param-gather fp8-e4m3 fp8-hybrid",
       .values = "fp8-format fp8-recipe fp8-margin fp8-amax-history-len fp8-amax-compute-algo "
                 "num-layers-at-start-in-bf16 num-layers-at-end-in-bf16 fp8-quantizer-factory "
                 "fp4-quantizer-factory fp4-format fp4-recipe te-precision-config-file "
                 "fp8-interval"},
      {.kind = kRefused,
       .reason = "the residual stream, logits and loss have fixed precisions here",
       .hint = "leave it out",
       .switches = "fp32-residual-connection fp16-lm-cross-entropy",
       .values = "output-logit-dtype"},

      // Optimizers.
      {.kind = kRefused,
       .reason = "weights of matrices decay; biases and the weights of norms never do",
       .hint = "use --apply-wd-to-qk-layernorm for the norms of q and k",
       .values = "no-weight-decay-cond-type"},
      {.kind = kRefused,
       .reason = "the assignment of parameters to groups of the optimizer is not written to a file",
       .hint = "leave it out: matrices decay, biases and norms do not, and --decoupled-lr is for "
               "embedding and output layer",
       .values = "dump-param-to-param-group-map"},
      {.kind = kImplied,
       .reason = "state in host memory has one implementation, with pinned buffers that are kept",
       .switches = "no-pin-cpu-grads no-pin-cpu-params use-torch-optimizer-for-cpu-offload "
                   "cpu-offloading-retain-pinned-cpu-buffers"},
      {.kind = kRefused,
       .reason = "this optimizer is not in this build yet",
       .hint = "use --optimizer adam",
       .switches = "muon-nesterov muon-no-split-qkv muon-use-syrk qk-clip",
       .values = "muon-momentum muon-num-ns-steps muon-scale-mode muon-extra-scale-factor "
                 "muon-coefficient-type muon-fp32-matmul-prec muon-tp-mode "
                 "muon-scalar-optimizer lion-beta1 lion-beta2 qk-clip-alpha "
                 "qk-clip-threshold"},
      {.kind = kRefused,
       .reason = "activations go to host memory by whole layers in this build",
       .hint = "use --cpu-offloading-num-layers",
       .switches = "fine-grained-activation-offloading delay-offload-until-cuda-graph",
       .values = "fine-grained-offloading-max-inflight-offloads min-offloaded-tensor-size "
                 "activation-offload-fraction "
                 "delta-offload-bytes-across-pp-ranks",
       .lists = "offload-modules"},

      // Data.
      {.kind = kImplied,
       .reason = "token files are mapped, masks are made by the kernels, and one reader suffices",
       .switches = "no-create-attention-mask-in-dataloader no-mmap-bin-files "
                   "disable-create-attention-mask-in-dataloader disable-mmap-bin-files "
                   "dataloader-fast-cache-load dataloader-defer-npy-index-mmap",
       .values = "num-workers num-dataset-builder-threads data-impl "
                 "per-dataset-sequences-path"},
      {.kind = kRefused,
       .reason = "a run has one blend, from its start to its end",
       .hint = "run the phases one after the other, each with --finetune from the one before",
       .values = "phase-transition-iterations"},
      {.kind = kRefused,
       .reason = "there is one validation set, of --eval-iters batches",
       .hint = "leave it out; --valid-data-path may blend several sets",
       .switches = "full-validation multiple-validation-sets",
       .lists = "validation-set-names"},
      {.kind = kImplied, .reason = "data is read from local files", .switches = "disable-msc"},
      {.kind = kRefused,
       .reason = "data is read from local files",
       .hint = "copy or mount the data, and give its path",
       .switches = "enable-msc",
       .values = "object-storage-cache-path"},
      {.kind = kRefused,
       .reason = "fill-in-the-middle is not in this build",
       .hint = "leave it out, or rearrange the documents before phalanx preprocess",
       .switches = "fim-data",
       .values = "fim-no-prefix fim-rate fim-spm-rate fim-split-sample fim-fragment-rate "
                 "fim-prefix-token "
                 "fim-middle-token fim-suffix-token fim-pad-token fim-eod-token"},
      {.kind = kRefused,
       .reason = "this setting of tokenizers is not in this build",
       .hint = "leave it out: a tokenizer does what its own files say",
       .switches = "tokenizer-sentencepiece-legacy tokenizer-hf-no-use-fast trust-remote-code "
                   "allow-ambiguous-pad-tokens "
                   "no-tokenizer-sentencepiece-ignore-extra-whitespaces "
                   "disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
       .values = "tokenizer-metadata",
       .lists = "tokenizer-special-tokens"},
      {.kind = kImplied,
       .reason = "tokenizers have one implementation, in this program",
       .switches = "use-gigatoken"},
      {.kind = kRefused,
       .reason = "the vocabulary is always rounded up to a multiple",
       .hint = "--make-vocab-size-divisible-by 1 rounds up to the tensor-parallel size alone",
       .switches = "no-pad-vocab-size disable-pad-vocab-size"},

      // Checkpoints.
      {.kind = kImplied,
       .reason = "checkpoints have one format, without a layout",
       .switches = "auto-detect-ckpt-format use-dist-ckpt use-persistent-ckpt-worker "
                   "async-ckpt-use-cpu-shm no-ckpt-fully-parallel-save ckpt-fully-parallel-save "
                   "ckpt-fully-parallel-load ckpt-assume-constant-structure "
                   "dist-ckpt-optim-fully-reshardable "
                   "distrib-optim-fully-reshardable-mem-efficient "
                   "ckpt-drop-redundant-extra-state no-save-tokenizer-assets "
                   "disable-save-tokenizer-assets ckpt-fully-parallel-load-per-rank-objects "
                   "ckpt-pg-tensors-cache-create no-ckpt-load-validate-sharding-integrity "
                   "disable-ckpt-load-validate-sharding-integrity dist-ckpt-save-pre-mcore-014",
       .values = "ckpt-format dist-ckpt-format async-strategy async-ckpt-cpu-priority "
                 "async-ckpt-io-priority ckpt-fully-parallel-save-process-group "
                 "ckpt-fully-parallel-load-process-group ckpt-pg-tensors-cache-path "
                 "dist-ckpt-strictness dist-ckpt-workers "
                 "ckpt-fully-parallel-load-exchange-algo"},
      {.kind = kImplied,
       .reason = "every block of a checkpoint has a checksum, which is checked when it is read",
       .switches = "verify-integrity"},
      {.kind = kRefused,
       .reason = "only the options of the model are taken from checkpoints",
       .hint = "use --use-checkpoint-args, and give the others as flags",
       .switches = "use-mp-args-from-checkpoint-args "
                   "no-use-tokenizer-model-from-checkpoint-args "
                   "disable-use-tokenizer-model-from-checkpoint-args "
                   "use-tokenizer-model-from-checkpoint-args load-main-params-from-ckpt",
       .values = "override-ckpt-iteration"},
      {.kind = kRefused,
       .reason = "a training run does not convert checkpoints",
       .hint = "use `phalanx convert`",
       .switches = "ckpt-convert-update-legacy-dist-opt-format",
       .values = "ckpt-convert-format ckpt-convert-save"},
      {.kind = kRefused,
       .reason = "checkpoints have one kind and one place",
       .hint = "use --save and --save-interval",
       .switches = "replication",
       .values =
           "non-persistent-global-ckpt-dir non-persistent-save-interval non-persistent-ckpt-type "
           "non-persistent-local-ckpt-dir non-persistent-local-ckpt-algo replication-jump "
           "replication-factor"},
      {.kind = kRefused,
       .reason = "dumps of single tensors are not in this build",
       .hint = "leave it out; `phalanx inspect` shows the tensors of a checkpoint",
       .values = "save-params-interval save-activations-interval save-wgrads-interval "
                 "save-dgrads-interval"},

      // Logs.
      {.kind = kImplied,
       .reason =
           "what is logged at all goes to every log; step time, TFLOP/s and memory always are",
       .switches = "log-throughput log-timers-to-tensorboard log-memory-to-tensorboard "
                   "log-validation-ppl-to-tensorboard log-world-size-to-tensorboard "
                   "log-batch-size-to-tensorboard log-learning-rate-to-tensorboard "
                   "log-loss-scale-to-tensorboard no-log-loss-scale-to-tensorboard "
                   "no-log-learnig-rate-to-tensorboard disable-log-loss-scale-to-tensorboard "
                   "no-barrier-with-level-1-timing disable-barrier-with-level-1-timing "
                   "log-progress log-device-memory-used",
       .values = "tensorboard-queue-size timing-log-level timing-log-option logging-level "
                 "log-memory-interval config-logger-dir"},
      {.kind = kImplied,
       .reason = "nothing is sent to a service: the same numbers stand in the log, and in "
                 "--tensorboard-dir and --metrics-file where they are given",
       .switches = "no-one-logger one-logger-async",
       .values = "wandb-project wandb-exp-name wandb-save-dir wandb-entity one-logger-project "
                 "one-logger-run-name app-tag-run-name app-tag-run-version"},
      {.kind = kRefused,
       .reason = "this log is not written in this build",
       .hint = "use --tensorboard-dir or --metrics-file",
       .switches = "log-energy log-max-attention-logit otel-enabled",
       .values = "otel-service-name otel-span-groups"},
      {.kind = kImplied,
       .reason = "--profile writes a trace of its own, with FLOPs and bytes of every kernel",
       .switches = "use-pytorch-profiler pytorch-profiler-collect-shapes "
                   "pytorch-profiler-collect-callstack pytorch-profiler-collect-chakra "
                   "record-shapes"},
      {.kind = kRefused,
       .reason = "a run listens to no requests",
       .hint = "use --profile with --profile-step-start and --profile-step-end",
       .switches = "run-workload-inspector-server"},
      {.kind = kRefused,
       .reason = "the history of allocations is not written in this build",
       .hint = "phalanx plan says what a run allocates, by purpose",
       .switches = "record-memory-history",
       .values = "memory-snapshot-path"},
  };
  return groups;
}

}  // namespace phx
