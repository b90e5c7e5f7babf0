// Multi-token prediction (DeepSeek-V3): behind the decoder, layer k of K predicts one token further
// than the layer before it. At position i, with h the hidden states of the layer before (of the
// decoder's final norm for k = 0) and e the embedding of token i + k + 1:
//
//   x = eh_proj(enorm(e) | hnorm(h))       [s/tp, b, h]
//   h' = final_layernorm(transformer_layer(x))
//
// The model's head turns h' into logits of token i + k + 2. As in Megatron, rotations go by
// position i, learned positions by i + k + 1, and where the sequence ends e is that of token 0,
// whose prediction does not count.
#pragma once

#include "phalanx/nn/norm.h"
#include "phalanx/ops/linear.h"
#include "phalanx/transformer/block.h"

namespace phx {

class TokenAhead : public Module {
 public:
  // `ahead`: k, from 0. Its transformer layer is the decoder's layer number num_layers + k.
  TokenAhead(const TransformerConfig& config, int64_t ahead, const RecomputePolicy& policy,
             const ModelRanks& ranks, const LayerParts& parts);

  // [s/tp, b, h], [s/tp, b, h] -> [s/tp, b, h], normalised for the head
  Tensor forward(const Tensor& hidden, const Tensor& embedded, const RopeTables& rope,
                 const ForwardContext& context);
  bool takes_context_parallel() const { return layer_.takes_context_parallel(); }

 private:
  Tensor run(const Tensor& hidden, const Tensor& embedded, const LayerCall& call);

  // "eh_proj.weight", whole on every tensor-parallel rank: with sequence parallelism each rank
  // multiplies its own rows, and nothing is exchanged. Cut, both its inputs and its output would be
  // gathered.
  class Projection : public Module {
   public:
    Projection(int64_t h, Init init, const TensorParallel& tp);
    Tensor forward(const Tensor& x);  // [s/tp, b, 2h] -> [s/tp, b, h]

   private:
    Parameter weight_;  // [h, 2h]
  };

  RecomputePolicy policy_;
  NormModule embedding_norm_, hidden_norm_;
  Projection projection_;
  TransformerLayer layer_;
  NormModule final_norm_;
};

}  // namespace phx
