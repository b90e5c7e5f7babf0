// A run of a cluster, for tests of how runs are made small.
#pragma once

#include <gtest/gtest.h>

#include "phalanx/verify/shrink.h"

namespace phx::testing {

// Llama 3 70B on 64 x 32 ranks, as a starting point.
inline RunConfig large_run() {
  RunConfig config;
  config.model.num_layers = 80;
  config.model.hidden_size = 8192;
  config.model.ffn_hidden_size = 28672;
  config.model.num_attention_heads = 64;
  config.model.group_query_attention = true;
  config.model.num_query_groups = 8;
  config.model.seq_length = config.model.max_position_embeddings = 8192;
  config.model.vocab_size = 128256;
  config.model.position_embedding_type = PositionEmbedding::rope;
  config.model.normalization = Normalization::RMSNorm;
  config.model.swiglu = true;
  config.model.add_bias_linear = false;
  config.parallel.tensor_model_parallel_size = 8;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 8;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 2048;
  config.train.bf16 = true;
  config.optim.use_precision_aware_optimizer = true;
  config.optim.exp_avg_sq_dtype = StateDType::bf16;
  config.optim.lr = 1e-4;
  return config;
}

inline constexpr int64_t kWorld = 2048;

inline void expect_valid(const SmallRun& small, const std::string& name) {
  const Problems problems = layout_problems(small.config.layout(), small.world);
  EXPECT_TRUE(problems.empty()) << name << ": " << format_problems(problems);
  EXPECT_LE(small.world, 16) << name;
  EXPECT_LE(small.config.model.num_layers, 16) << name;
}

}  // namespace phx::testing
