// The floating-point operations of a training step as Megatron counts them: forward and backward of
// the matrix products and of causal attention; no norms, softmax, router, recompute. Documents that
// are packed into a sample and do not see each other count each with its own length.
#pragma once

#include <cstdint>
#include <optional>

namespace phx {

// Latent attention: widths of the latent vectors (q_rank 0: none for queries) and the channels of a
// head.
struct LatentFlops {
  int64_t q_rank = 0, kv_rank = 0;
  int64_t plain = 0, turned = 0;  // of queries and keys, without and with positions
  int64_t value = 0;
};

// A decoder of the GPT family; the defaults are of a dense model.
struct FlopsShape {
  int64_t num_layers = 0;  // dense and MoE, without the multi-token-prediction layers
  int64_t hidden = 0;
  int64_t ffn_hidden = 0;  // of dense layers
  int64_t num_heads = 0;
  int64_t num_groups = 0;  // of keys and values; num_heads without grouping
  int64_t head_size = 0;
  int64_t padded_vocab = 0;
  bool swiglu = false;  // other gated activations count as ungated, as in Megatron
  bool attention_output_gate = false;
  int64_t num_moe_layers = 0;  // of num_layers + num_mtp_layers
  int64_t expert_ffn_hidden = 0;
  int64_t shared_expert_ffn_hidden = 0;
  int64_t experts_per_token = 0;
  int64_t num_mtp_layers = 0;
  std::optional<LatentFlops> latent = {};  // instead of groups and head size
};

// `tokens` of a global batch, and the sum over its sequences of length squared. A double holds the
// result of a 175B model exactly, and never overflows.
double training_flops(const FlopsShape& shape, int64_t tokens, int64_t squared_lengths);

// The same for `batch` sequences of equal length.
double training_flops_of_batch(const FlopsShape& shape, int64_t batch, int64_t seq_length);

// TFLOP/s of each of `world_size` devices.
double tflops_per_gpu(double flops, double seconds_per_iteration, int64_t world_size);

}  // namespace phx
