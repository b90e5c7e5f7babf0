// How a run is cut over ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/option_traits.h"

namespace phx {

struct Rule;

struct ParallelConfig {
  int64_t tensor_model_parallel_size = 1;
  int64_t pipeline_model_parallel_size = 1;
  int64_t context_parallel_size = 1;
  int64_t expert_model_parallel_size = 1;
  bool sequence_parallel = false;

  template <class Field>
  void each(Field&& field) {
    field("tensor-model-parallel-size", tensor_model_parallel_size,
          "ranks that share every matrix (TP)", Positive{});
    field("pipeline-model-parallel-size", pipeline_model_parallel_size,
          "ranks that share the layers (PP)", Positive{});
    field("context-parallel-size", context_parallel_size, "ranks that share every sequence (CP)",
          Positive{});
    field("expert-model-parallel-size", expert_model_parallel_size,
          "ranks that share the experts (EP)", Positive{});
    field("sequence-parallel", sequence_parallel,
          "cut norms and dropout over the tensor-parallel ranks; no change at TP 1");
  }
};

std::vector<Rule> parallel_rules();

}  // namespace phx
