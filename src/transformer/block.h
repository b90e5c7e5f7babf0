// One transformer layer, and a stack of them with its recompute policy.
#pragma once

#include <memory>
#include <vector>

#include "transformer/mlp.h"
#include "transformer/self_attention.h"

namespace phx {

class TransformerLayer : public Module {
 public:
  TransformerLayer(const TransformerConfig& config, int64_t layer);
  Tensor forward(const Tensor& x, const RopeTables& rope, const ForwardContext& context,
                 const struct RecomputePolicy& policy);  // [s, b, h] -> [s, b, h]

 private:
  SelfAttention self_attention_;
  Mlp mlp_;
};

// What is computed again in the backward instead of being kept.
struct RecomputePolicy {
  enum class Layers { none, uniform, block } layers = Layers::none;
  int64_t num_layers =
      1;  // uniform: layers a unit; block: how many layers are recomputed, from the first
  bool core_attention = false;
  bool mlp = false;
};

class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerConfig& config, const RecomputePolicy& policy);
  Tensor forward(const Tensor& x, const RopeTables& rope,
                 const ForwardContext& context);  // final norm included

 private:
  Tensor run(const Tensor& x, size_t first, size_t count, const RopeTables& rope,
             const ForwardContext& context);

  RecomputePolicy policy_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  NormModule final_norm_;
};

}  // namespace phx
