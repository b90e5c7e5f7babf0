// What the parts of a layer are built with: how the model is cut, and which layer it is.
#pragma once

#include "phalanx/parallel/context/context_parallel.h"
#include "phalanx/parallel/expert/dispatch.h"
#include "phalanx/parallel/tensor/tensor_parallel.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// The ranks that a model's layers are cut over.
struct ModelRanks {
  TensorParallel tp;
  // Tensor-parallel ranks that share a key group, when there are more ranks than groups.
  Communicator* key_sharers = nullptr;
  ExpertParallel experts = {};
  ContextParallel context = {};
};

struct LayerContext {
  const TransformerConfig& config;
  ModelRanks ranks;
  int64_t layer = 0;  // global index
};

}  // namespace phx
