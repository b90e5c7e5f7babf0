// A run small enough for tests: every kind of layer, a few steps in milliseconds.
#pragma once

#include <cstring>
#include <vector>

#include "phalanx/train/session.h"

namespace phx::testing {

inline RunConfig tiny_run() {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = 3;
  model.hidden_size = 32;
  model.num_attention_heads = 4;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.ffn_hidden_size = 48;
  model.seq_length = 24;
  model.max_position_embeddings = 24;
  model.vocab_size = 61;
  model.make_vocab_size_divisible_by = 64;
  model.position_embedding_type = PositionEmbedding::rope;
  model.normalization = Normalization::RMSNorm;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.qk_layernorm = true;
  model.attention_dropout = 0.1;
  model.hidden_dropout = 0.1;
  config.train.micro_batch_size = 2;
  config.train.global_batch_size = 6;
  config.train.train_iters = 20;
  config.optim.lr = 3e-3;
  config.data.mock_data = true;
  return config;
}

// The losses of iterations first + 1 .. last.
inline std::vector<double> train(Session& session, int64_t first, int64_t last,
                                 double loss_scale = 1) {
  std::vector<double> losses;
  for (int64_t i = first; i < last; ++i) {
    session.train_batches.load(i * session.config.train.global_batch());
    session.step.run(session.train_batches, {.iteration = i + 1,
                                             .update = i + 1,
                                             .lr = *session.config.optim.lr,
                                             .weight_decay = 0.1,
                                             .loss_scale = loss_scale});
    const StepResults results = session.step.collect();
    losses.push_back(results.loss_sum / results.tokens);
  }
  return losses;
}

inline std::vector<char> bytes_of(const Tensor& x) {
  std::vector<char> bytes(x.bytes());
  copy_to_host(x, bytes.data());
  return bytes;
}

// Weights and optimizer state: what two equal runs agree on to the byte.
inline std::vector<char> state_bytes(Session& session) {
  std::vector<char> all = bytes_of(session.store.weights());
  for (const OptimizerState& state : session.optimizer.states()) {
    const auto more = bytes_of(state.flat);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace phx::testing
