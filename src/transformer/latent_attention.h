// Multi-head latent attention:
//   norm -> q down -> norm -> q up                       -> rotate the last channels of each head
//        -> kv down -> norm -> kv up -> keys | values, all keys with the same rotated channels
//   -> attention -> output projection
// Down-projections are whole on every tensor-parallel rank, up-projections are cut by heads. Names:
// "input_layernorm", "self_attention.linear_q_down_proj" and so on; a latent vector's norm belongs
// to the up-projection behind it.
#pragma once

#include <optional>

#include "phalanx/nn/norm.h"
#include "phalanx/ops/latent_keys.h"
#include "phalanx/transformer/layer_part.h"
#include "phalanx/transformer/normed_linear.h"

namespace phx {

class LatentAttention : public LayerPart {
 public:
  explicit LatentAttention(const LayerContext& layer);
  Tensor add_to(const Tensor& residual, const Tensor& x, const LayerCall& call) override;
  bool takes_context_parallel() const override { return true; }

 private:
  // A linear layer that every tensor-parallel rank has whole and uses on its own rows.
  class DownProjection : public Module {
   public:
    DownProjection(int64_t in, int64_t out, Init init, const TensorParallel& tp);
    Tensor forward(const Tensor& x, const Remake& remake);  // [s/tp, b, in] -> [s/tp, b, out]

   private:
    Parameter weight_;  // [out, in]
  };
  class Group : public Module {
   public:
    using Module::add_child;
  };

  // From what queries are made of (the latent vector, or the normalised hidden state without one)
  // and the down-projection of keys and values: [s/tp, b, ..] both -> [s, b, n dv / tp]
  Tensor attend(const Tensor& q_source, const Tensor& kv_latent, const LayerCall& call,
                const Remake& remake);
  Tensor core(const Tensor& q, const Tensor& kv, const ForwardContext& context);
  Tensor cached(const Tensor& q, const Tensor& kv, const ForwardContext& context);

  const TransformerConfig& config_;
  int64_t layer_;
  TensorParallel tp_;
  ContextParallel ranks_;
  LatentHeads heads_;  // of this rank
  std::string dropout_site_;
  NormModule norm_;
  Group attention_;
  std::optional<ColumnLinear> q_proj_;  // without a latent vector of queries
  std::optional<DownProjection> q_down_;
  std::optional<NormedLinear> q_up_;
  DownProjection kv_down_;
  NormedLinear kv_up_;
  BranchLinear linear_proj_;
};

}  // namespace phx
