#include "phalanx/report/flops.h"

#include "phalanx/base/error.h"

namespace phx {

namespace {

// Multiply-adds of a layer's attention: of a token in its projections, and of a pair of tokens in
// the two products, which see half of the square each.
struct AttentionCost {
  double token = 0, pair = 0;
};

AttentionCost attention_cost(const FlopsShape& shape) {
  const auto h = double(shape.hidden), heads = double(shape.num_heads);
  if (!shape.latent) {
    const double q = heads * double(shape.head_size);
    const double kv = double(shape.num_groups * shape.head_size);
    const double query_width = shape.attention_output_gate ? 2 * q : q;
    return {.token = h * (query_width + 2 * kv) + q * h, .pair = q};
  }
  const LatentFlops& latent = *shape.latent;
  const auto rq = double(latent.q_rank), rkv = double(latent.kv_rank);
  const double q = heads * double(latent.plain + latent.turned), v = heads * double(latent.value);
  const double keys = heads * double(latent.plain);
  const double queries = latent.q_rank == 0 ? h * q : rq * (h + q + 1);  // 1: the norm
  return {.token = queries + rkv * (h + keys + v + 1) + h * double(latent.turned) + v * h,
          .pair = (q + v) / 2};
}

}  // namespace

double training_flops(const FlopsShape& shape, int64_t tokens, int64_t squared_lengths) {
  const int64_t h = shape.hidden, mtp = shape.num_mtp_layers;
  const int64_t num_layers = shape.num_layers + mtp;
  const int64_t num_dense = num_layers - shape.num_moe_layers;
  PHX_CHECK(num_dense >= 0, "FLOPs: ", shape.num_moe_layers, " MoE layers of ", num_layers);
  const int64_t matrices = shape.swiglu ? 3 : 2;  // gate, up, down or up, down

  // Multiply-adds of a token in the forward pass.
  const int64_t dense_mlp = num_dense * h * shape.ffn_hidden * matrices;
  const int64_t expert_width =
      shape.expert_ffn_hidden * shape.experts_per_token + shape.shared_expert_ffn_hidden;
  const int64_t moe = shape.num_moe_layers * h * expert_width * matrices;
  const AttentionCost attention = attention_cost(shape);
  const int64_t mtp_joins = mtp * (3 * h + 2 * h * h);  // norms, and the projection of two inputs
  const int64_t head = h * shape.padded_vocab * (1 + mtp);
  const double linear =
      double(dense_mlp + moe + mtp_joins + head) + double(num_layers) * attention.token;

  // 6: two operations a multiply-add, in the forward pass and twice in the backward pass.
  const double pairs =
      attention.pair * static_cast<double>(num_layers) * static_cast<double>(squared_lengths);
  return 6. * static_cast<double>(tokens) * linear + 6. * pairs;
}

double training_flops_of_batch(const FlopsShape& shape, int64_t batch, int64_t seq_length) {
  return training_flops(shape, batch * seq_length, batch * seq_length * seq_length);
}

double tflops_per_gpu(double flops, double seconds_per_iteration, int64_t world_size) {
  return flops / (seconds_per_iteration * 1e12 * static_cast<double>(world_size));
}

}  // namespace phx
