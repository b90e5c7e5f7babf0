// One transformer layer, and a stack of them with its recompute policy.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/nn/norm.h"
#include "phalanx/transformer/layer_part.h"

namespace phx {

class TransformerLayer : public Module {
 public:
  explicit TransformerLayer(std::vector<NamedPart> parts);
  Tensor forward(const Tensor& x, const LayerCall& call);  // [s/tp, b, h] -> [s/tp, b, h]
  const std::vector<NamedPart>& parts() const { return parts_; }
  bool takes_context_parallel() const;  // all parts do

 private:
  std::vector<NamedPart> parts_;
};

// Consecutive layers: all of a model's, or those of one pipeline chunk.
struct LayerRange {
  int64_t first = 0, count = 0;
  bool final_norm = true;
};

class TransformerBlock : public Module {
 public:
  TransformerBlock(const TransformerConfig& config, const RecomputePolicy& policy,
                   const LayerRange& range, const ModelRanks& ranks, const LayerParts& parts);
  Tensor forward(const Tensor& x, const RopeTables& rope,
                 const ForwardContext& context);  // [s/tp, b, h] -> [s/tp, b, h]
  std::vector<std::string> part_names() const;    // of all its layers, each once
  bool takes_context_parallel() const;            // all layers do

 private:
  Tensor run(const Tensor& x, size_t first, size_t count, const RopeTables& rope,
             const ForwardContext& context, const RecomputePolicy& policy);
  Tensor run_offloaded(Tensor x, const RopeTables& rope, const ForwardContext& context);

  RecomputePolicy policy_;
  std::vector<std::unique_ptr<TransformerLayer>> layers_;
  std::optional<NormModule> final_norm_;
};

}  // namespace phx
