// A run whose parameters and bytes can be counted by hand.
#pragma once

#include "phalanx/train/session.h"
#include "train/tiny_run.h"

namespace phx::testing {

// 180,608 parameters: table 128 x 128, qkv 384 x 128, projection 128 x 128, fc1 512 x 128, fc2 128
// x 256 and three norms of 128; every size is a multiple of what a parameter is aligned to.
inline constexpr int64_t kParameters = 180608;
inline RunConfig countable_run() {
  RunConfig config = tiny_run();
  TransformerConfig& model = config.model;
  model.num_layers = 1;
  model.hidden_size = model.vocab_size.emplace(128);
  model.make_vocab_size_divisible_by = 128;
  model.group_query_attention = model.qk_layernorm = false;
  model.ffn_hidden_size = 256;
  config.train.bf16 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  return config;
}

}  // namespace phx::testing
