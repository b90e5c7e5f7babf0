// norm -> fused QKV -> (norm of q and k) -> rotary positions -> attention -> output projection.
//
// In memory the QKV rows are ordered all q heads | all k heads | all v heads, so that q, k and v
// are uniformly strided views and RoPE touches one contiguous range. Globally (name, checkpoint,
// random numbers) they keep Megatron's order, group by group: q heads of the group, its k, its v.
// The parameter's pieces are the map between the two.
#pragma once

#include <optional>

#include "nn/norm.h"
#include "ops/attention.h"
#include "transformer/forward_context.h"
#include "transformer/normed_linear.h"
#include "transformer/rope_tables.h"
#include "transformer/transformer_config.h"

namespace phx {

// Rows of the fused QKV weight: Megatron's groups to local q | k | v.
std::vector<RowPiece> qkv_rows(int64_t heads, int64_t groups, int64_t head_dim);

class SelfAttention : public Module {
 public:
  SelfAttention(const TransformerConfig& config, int64_t layer);

  Tensor forward(const Tensor& x, const RopeTables& rope, const ForwardContext& context,
                 bool recompute_core);  // [s, b, h] -> [s, b, h], the residual added

 private:
  AttentionOptions options(const ForwardContext& context) const;
  Tensor core(const Tensor& qkv, const ForwardContext& context);
  Tensor cached(const Tensor& qkv, const ForwardContext& context);

  const TransformerConfig& config_;
  int64_t layer_;
  int64_t n_, g_, d_;
  NormedLinear linear_qkv_;
  std::optional<NormModule> q_norm_, k_norm_;
  BranchLinear linear_proj_;
};

}  // namespace phx
