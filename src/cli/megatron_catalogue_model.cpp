// Architectures: what every model here does anyway, and the models that are not in this build.
#include "phalanx/cli/megatron_catalogue.h"

namespace phx {

std::span<const CatalogueGroup> model_catalogue() {
  static const CatalogueGroup groups[] = {
      {.kind = kImplied,
       .reason = "there is one implementation of the layers, with one set of kernels a device",
       .switches = "use-mcore-models use-flash-attn use-transformer-engine-op-fuser "
                   "use-legacy-models fused-residual-rmsnorm export-force-local-attention "
                   "use-te-activation-func use-grouped-gemm-for-dense-mlp enable-experimental",
       .values = "transformer-impl attention-backend flash-attention-version"},
      {.kind = kImplied,
       .reason = "which operations share a kernel is decided here; the result is the same up to "
                 "rounding",
       .switches = "no-masked-softmax-fusion no-bias-swiglu-fusion "
                   "no-bias-dropout-fusion no-rope-fusion no-persist-layer-norm "
                   "no-gradient-accumulation-fusion cross-entropy-loss-fusion "
                   "disable-masked-softmax-fusion "
                   "disable-bias-swiglu-fusion disable-bias-dropout-fusion disable-rope-fusion "
                   "disable-persist-layer-norm disable-gradient-accumulation-fusion "
                   "disable-jit-fuser no-gradient-reduce-div-fusion",
       .values = "cross-entropy-fusion-impl onnx-safe"},
      {.kind = kImplied,
       .reason = "softmax and its statistics are computed in fp32",
       .switches = "attention-softmax-in-fp32 no-query-key-layer-scaling"},
      {.kind = kImplied,
       .reason = "products of 16-bit matrices are summed in fp32",
       .switches = "disable-bf16-reduced-precision-matmul"},
      {.kind = kImplied,
       .reason = "it divides scores by the layer's number and multiplies them again, so that fp16 "
                 "does not overflow; scores are fp32 here",
       .switches = "apply-query-key-layer-scaling"},
      {.kind = kImplied,
       .reason = "the type of position embedding already says so",
       .switches = "no-position-embedding"},
      {.kind = kImplied,
       .reason = "initial weights do not depend on the layout or the device",
       .switches = "use-cpu-initialization no-initialization te-rng-tracker"},

      {.kind = kRefused,
       .reason = "this part of mixture of experts is not in this build yet",
       .hint = "leave it out: experts work without it",
       .switches = "moe-router-padding-for-quantization "
                   "moe-router-padding-for-fp8 moe-enable-deepep moe-apply-probs-on-input "
                   "moe-shared-expert-overlap moe-use-upcycling "
                   "moe-layer-recompute moe-paged-stash moe-extended-tp moe-enable-routing-replay "
                   "moe-hybridep-pad-uneven-dispatch-inputs moe-ncclep-zero-copy "
                   "moe-pad-experts-for-cuda-graph-inference moe-permute-fusion-into-hybridep "
                   "moe-routing-trace-capture-hidden-states moe-routing-trace-capture-logits "
                   "moe-routing-trace-dump-weights moe-single-grouped-bias "
                   "moe-single-grouped-weight moe-use-grouped-tensor "
                   "use-fused-weighted-squared-relu use-grouped-gemm-for-shared-expert",
       .values = "moe-router-quantile-balancing-ema "
                 "moe-router-force-biased moe-input-jitter-eps moe-flex-dispatcher-backend "
                 "moe-flex-dispatcher-num-sms moe-dispatch-fwd-dtype moe-combine-bwd-dtype "
                 "moe-latent-size moe-upcycling-granularity moe-routing-trace-path "
                 "save-tokens-per-expert-interval moe-router-topk-limited-devices "
                 "moe-paged-stash-page-size moe-paged-stash-buffer-size-factor-cuda "
                 "moe-paged-stash-buffer-size-factor-cpu moe-deepep-num-sms "
                 "moe-hybridep-num-blocks-permute moe-hybridep-num-blocks-unpermute "
                 "moe-hybridep-num-sms moe-hybridep-num-sms-preprocessing "
                 "moe-mlp-glu-interleave-size moe-routing-trace-max-training-iters "
                 "moe-shared-expert-glu-interleave-size"},
      {.kind = kImplied,
       .reason = "experts are one grouped product, their rows are moved by fused kernels, and the "
                 "router computes in fp32",
       .switches = "moe-router-fusion moe-grouped-gemm moe-permute-fusion "
                   "moe-use-legacy-grouped-gemm"},
      {.kind = kRefused,
       .reason = "a cache of latent vectors belongs to inference, which keeps keys and values here",
       .hint = "leave it out",
       .switches = "cache-mla-latents"},
      {.kind = kRefused,
       .reason = "the down-projections of queries and keys are two products here",
       .hint = "leave it out: the result is the same",
       .switches = "mla-down-proj-fusion"},
      {.kind = kRefused,
       .reason = "each token ahead has a layer of its own here, which the gradients of all losses "
                 "reach",
       .hint = "leave it out: --mtp-num-layers and --mtp-loss-scaling-factor are all that "
               "multi-token prediction needs",
       .switches = "mtp-use-repeated-layer mtp-detach-heads mtp-hsm mtp-standalone",
       .values = "mtp-hybrid-override-pattern"},
      {.kind = kRefused,
       .reason = "only softmax attention is in this build: no linear, sparse or state-space layers",
       .hint = "leave it out: every layer has softmax attention and an MLP; --window-size gives a "
               "sliding window",
       .switches = "is-hybrid-model no-dsa-indexer-rotate-activation "
                   "disable-dsa-indexer-rotate-activation no-dsa-indexer-scoring-relu "
                   "disable-dsa-indexer-scoring-relu dsa-indexer-k-norm-fp32 "
                   "dsa-indexer-rope-interleaved dsa-indexer-use-sparse-loss gdp-cutedsl-kernel "
                   "disable-mamba-mem-eff-path",
       .values = "hybrid-layer-pattern hybrid-override-pattern experimental-attention-variant "
                 "linear-attention-freq linear-conv-kernel-dim linear-key-head-dim "
                 "linear-value-head-dim linear-num-key-heads linear-num-value-heads "
                 "dsa-indexer-n-heads dsa-indexer-head-dim dsa-indexer-topk "
                 "dsa-indexer-loss-coeff mamba-state-dim mamba-head-dim mamba-num-groups "
                 "mamba-num-heads hybrid-attention-ratio=0|0.0 hybrid-mlp-ratio=0|0.0 "
                 "dsa-indexer-k-norm-epsilon dsa-indexer-skip-topk-offset dsa-indexer-topk-freq "
                 "dsa-kernel-backend=none gdp-num-chunk-states-to-recompute gdp-num-householder "
                 "mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype "
                 "mamba-training-ssm-states-dtype"},
      {.kind = kRefused,
       .reason = "hyper-connections are not in this build",
       .hint = "leave it out: a block has one residual stream",
       .switches = "enable-mhc-connections",
       .values = "mhc-num-residual-streams mhc-sinkhorn-iterations mhc-init-gating-factor "
                 "mhc-recompute-layer-num"},
      {.kind = kRefused,
       .reason = "maximal-update parametrisation is not in this build",
       .hint = "leave it out, and set --lr, --decoupled-lr and --init-method-std for this width",
       .switches = "use-mup",
       .values = "mup-base-hidden-size mup-embedding-mult mup-output-mult mup-attn-scale-power "
                 "mup-base-head-dim mup-width-mult=1|1.0"},
      {.kind = kRefused,
       .reason = "this MLP activation is not in this build",
       .hint = "use --swiglu, --geglu, --squared-relu, --openai-gelu, or none of them for GELU",
       .switches = "quick-geglu",
       .values = "glu-linear-offset=0|0.0 activation-func-clamp-value"},
      {.kind = kRefused,
       .reason = "this variant of attention is not in this build",
       .hint = "leave it out: scores go through a plain softmax; --qk-layernorm normalises q and k",
       .switches = "qk-l2-norm attention-output-gate",
       .values = "softmax-type=vanilla"},
      {.kind = kRefused,
       .reason = "blocks normalise their input, as GPT does; BERT's order is not in this build",
       .hint = "leave it out",
       .switches = "apply-residual-connection-post-layernorm"},
      {.kind = kRefused,
       .reason = "weights start from a normal distribution",
       .hint = "set its width with --init-method-std",
       .switches = "init-method-xavier-uniform"},
      {.kind = kRefused,
       .reason = "layers are described by flags alone",
       .hint = "see --help for what a layer may have",
       .values = "heterogeneous-layers-config-path heterogeneous-layers-config-encoded-json",
       .lists = "spec"},
      {.kind = kRefused,
       .reason = "kernels whose rows do not depend on the batch's size are not in this build",
       .hint = "--deterministic-mode gives the same bits for the same batches",
       .switches = "batch-invariant-mode",
       .values = "batch-invariant-backend"},
      {.kind = kRefused,
       .reason = "quantised attention is not in this build",
       .hint = "leave it out, and use --bf16",
       .switches = "use-kitchen-attention",
       .values = "kitchen-attention-backend"},
  };
  return groups;
}

}  // namespace phx
