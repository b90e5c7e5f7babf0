// Other tasks that share Megatron's parser: BERT and T5, retrieval, vision, reinforcement learning,
// distillation, serving. Switches that turn a part of them off ask for what holds anyway.
#include "phalanx/cli/megatron_catalogue.h"

namespace phx {
namespace {

constexpr const char* kOtherModel =
    "it belongs to BERT, T5 or a retriever built on them: encoders with other data, masks and "
    "losses. `pretrain` trains decoder-only GPT models";
constexpr const char* kGptInstead =
    "train a GPT on data of phalanx preprocess, with --tokenizer-type GPT2BPETokenizer, "
    "HuggingFaceTokenizer or another of --help";

constexpr CatalogueGroup kOtherModels[] = {
    {.kind = kRefused,
     .reason = kOtherModel,
     .hint = kGptInstead,
     .switches = "bert-no-binary-head biencoder-shared-query-context-model output-bert-embeddings "
                 "retriever-score-scaling use-one-sent-docs",
     .values = "mask-prob short-seq-prob encoder-num-layers decoder-num-layers decoder-seq-length "
               "vocab-extra-ids=0 relative-attention-num-buckets relative-attention-max-distance "
               "bert-load bert-embedder-type biencoder-projection-dim ict-head-size ict-load "
               "titles-data-path block-data-path embedding-path evidence-data-path "
               "indexer-batch-size indexer-log-interval query-in-block-prob sample-rate=1|1.0",
     .lists = "retriever-report-topk-accuracies"},
    {.kind = kRefused,
     .reason = "it belongs to models of images; `pretrain` trains models of text",
     .hint = "leave it out",
     .switches = "vision-pretraining dino-norm-last-layer",
     .values = "vision-pretraining-type vision-backbone-type swin-backbone-type img-h img-w "
               "num-channels num-classes patch-dim classes-fraction data-per-class-fraction "
               "mask-type mask-factor iter-per-epoch dino-local-img-size dino-local-crops-number "
               "dino-head-hidden-size dino-bottleneck-size dino-freeze-last-layer "
               "dino-warmup-teacher-temp dino-teacher-temp dino-warmup-teacher-temp-epochs "
               "head-lr-mult=1|1.0",
     .lists = "mrope-section"},
};

constexpr CatalogueGroup kOtherTasks[] = {
    {.kind = kRefused,
     .reason = "reinforcement learning is not in this build",
     .hint = "fine-tune on chats with --sft, or pretrain",
     .switches = "perform-rl-step rl-use-sequence-packing grpo-filter-groups-with-same-reward "
                 "rl-durable-rollout-bank rl-inference-logprobs-is-correction "
                 "rl-offload-inference-model-weights-when-idle "
                 "rl-offload-optimizer-during-inference rl-partial-rollouts rl-persist-cuda-graphs "
                 "rl-profile rl-skip-bos-token rl-training-cuda-graphs "
                 "rl-verify-model-weights-swap",
     .values = "grpo-prompts-per-step grpo-group-size grpo-iterations grpo-clamp-eps-lower "
               "grpo-clamp-eps-upper grpo-kl-beta grpo-entropy-term-weight "
               "rl-inference-tensor-model-parallel-size rl-inference-pipeline-model-parallel-size "
               "rl-inference-expert-model-parallel-size "
               "rl-inference-expert-tensor-model-parallel-size refit-method langrl-env-config "
               "rl-consumption-granularity rl-submission-granularity rl-default-temperature "
               "rl-default-top-k rl-default-top-p rl-generation-lag "
               "rl-importance-sampling-truncation-coef rl-inference-model-unified-memory-level "
               "rl-kv-cache-management-mode rl-max-inflight-requests rl-profile-dir "
               "rl-prompts-per-eval rl-rollout-bank-dir rl-rollout-bank-max-bytes "
               "rl-sequence-packing-algo rl-sequence-packing-max-sequences-per-bin",
     .lists = "rl-inference-parsers"},
    {.kind = kImplied,
     .reason = "it turns off a part of reinforcement learning or serving, which training here does "
               "not have",
     .switches = "no-rl-inference-logprobs-is-correction "
                 "no-rl-offload-inference-model-weights-when-idle no-rl-partial-rollouts "
                 "no-rl-persist-cuda-graphs no-rl-skip-bos-token no-rl-training-cuda-graphs "
                 "no-rl-use-sequence-packing no-rl-verify-model-weights-swap "
                 "no-inference-disable-ep-consensus no-inference-dynamic-batching-prefix-caching "
                 "no-inference-text-gen-server-logging "
                 "no-inference-use-synchronous-zmq-collectives no-inference-wandb-logging"},
    {.kind = kRefused,
     .reason = "it tunes Megatron's engine for serving, and training does not serve",
     .hint =
         "leave it out; `phalanx generate` samples from a checkpoint, `phalanx convert` exports "
         "it for a server",
     .switches = "inference-dynamic-batching inference-dynamic-batching-prefix-caching "
                 "inference-dynamic-batching-track-generated-token-events "
                 "inference-dynamic-batching-track-paused-request-events "
                 "inference-cuda-graph-all-prefills inference-disable-ep-consensus "
                 "inference-disable-triton-nvls-kernels inference-fuse-tp-communication "
                 "inference-moe-disable-fused-quant-kernels inference-rng-tracker "
                 "inference-text-gen-server-logging inference-use-synchronous-zmq-collectives "
                 "inference-wandb-logging decode-only-cuda-graphs enable-chunked-prefill "
                 "flash-decode nccl-all-reduce-for-prefill use-legacy-static-engine "
                 "use-same-sampling-seed-across-dp-ranks",
     .values = "inference-shards inference-batch-times-seqlen-threshold "
               "inference-coordinator-port inference-cuda-graph-max-tokens "
               "inference-cuda-graph-scope inference-dynamic-batching-async-sched-mode "
               "inference-dynamic-batching-block-size inference-dynamic-batching-buffer-size-gb "
               "inference-dynamic-batching-cuda-graph-mixed-prefill-count "
               "inference-dynamic-batching-cuda-graph-sizing-distribution "
               "inference-dynamic-batching-logprobs-mode "
               "inference-dynamic-batching-mamba-memory-ratio "
               "inference-dynamic-batching-max-requests inference-dynamic-batching-max-tokens "
               "inference-dynamic-batching-num-cuda-graphs "
               "inference-dynamic-batching-paused-buffer-size-gb "
               "inference-dynamic-batching-prefix-caching-coordinator-policy "
               "inference-dynamic-batching-prefix-caching-eviction-policy "
               "inference-dynamic-batching-prefix-caching-mamba-gb "
               "inference-dynamic-batching-prefix-caching-routing-alpha "
               "inference-dynamic-batching-sampling-backend "
               "inference-dynamic-batching-unified-memory-level inference-grouped-gemm-backend "
               "inference-logging-step-interval inference-max-requests inference-max-seq-length "
               "inference-moe-token-dispatcher-type max-tokens-to-oom num-speculative-tokens=0"},
    {.kind = kRefused,
     .reason = "distillation from stored logits is not in this build",
     .hint = "leave it out: the loss is cross-entropy on the data's tokens",
     .switches = "logits-load-ignore-errors",
     .values = "logits-save-dir logits-save-top-k logits-save-top-p logits-save-top-p-min-k "
               "logits-save-dtype logits-load-dir logits-load-kd-loss-alpha "
               "logits-load-decode-threads logits-load-msc-prefetch-depth "
               "logits-load-prefetch-factor"},
};

}  // namespace

std::span<const CatalogueGroup> other_model_catalogue() { return kOtherModels; }
std::span<const CatalogueGroup> other_task_catalogue() { return kOtherTasks; }

}  // namespace phx
