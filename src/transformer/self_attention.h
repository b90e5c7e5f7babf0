// norm -> fused QKV -> (norm of q and k) -> rotary positions -> attention -> output projection.
//
// In memory the QKV rows are ordered all q heads | all k heads | all v heads, so that q, k and v
// are uniformly strided views and RoPE touches one contiguous range. Globally (name, checkpoint,
// random numbers) they keep Megatron's order, group by group: q heads of the group, its k, its v.
// The parameter's pieces are the map between the two.
#pragma once

#include <optional>

#include "phalanx/nn/norm.h"
#include "phalanx/ops/attention.h"
#include "phalanx/transformer/layer_part.h"
#include "phalanx/transformer/normed_linear.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// Heads that a rank has. With more ranks than key groups, `key_sharers` ranks have one group
// together: each its own query heads, and a slice of the key and the value.
struct HeadCut {
  HeadCut(const TransformerConfig& config, const TensorParallel& tp);
  int64_t n, g, d;          // query heads, key heads, channels
  int64_t first_head;       // global index of the first query head
  int64_t key_sharers = 1;  // ranks that share a key group
};

// Rows of the fused QKV weight: Megatron's groups to this rank's q | k | v.
RowCut qkv_rows(const TransformerConfig& config, const TensorParallel& tp);

// What a layer's attention computes beside its heads. `first_head`: the rank's first, of all.
AttentionOptions attention_options(const TransformerConfig& config, int64_t layer,
                                   int64_t first_head, const ForwardContext& context);

// Puts a call's keys and values, side by side in the last dimension of `kv` from `first` on, behind
// those of the `before` tokens in the cache.
struct CachedKeys {
  Tensor keys, values;  // [before + s, b, ..]
};
CachedKeys add_to_cache(LayerCache& cache, int64_t before, const Tensor& kv, int64_t first);

// Norms of q and k over all heads together: a rank has the weights of its own rows of QKV.
class AllHeadsNorm : public Module {
 public:
  AllHeadsNorm(const RowCut& channels, bool zero_centred);
  Parameter& weight() { return weight_; }

 private:
  Parameter weight_;
};

class SelfAttention : public LayerPart {
 public:
  explicit SelfAttention(const LayerContext& layer);

  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override;
  bool takes_context_parallel() const override { return true; }

 private:
  Tensor all_heads_norm(const Tensor& qkv);
  Tensor core(const Tensor& qkv, const ForwardContext& context);
  Tensor cached(const Tensor& qkv, const ForwardContext& context);

  const TransformerConfig& config_;
  int64_t layer_;
  HeadCut heads_;
  Communicator *key_sharers_, *tp_group_;
  ContextParallel ranks_;
  std::string dropout_site_;
  NormedLinear linear_qkv_;
  std::optional<NormModule> q_norm_, k_norm_;
  std::optional<AllHeadsNorm> all_q_norm_, all_k_norm_;
  BranchLinear linear_proj_;
};

}  // namespace phx
