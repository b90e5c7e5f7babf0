#include "phalanx/transformer/rope_tables.h"

#include <map>
#include <utility>

namespace phx {

namespace {

RopeConfig rope_config(const TransformerConfig& config, int64_t layer) {
  RopeConfig rope{.head_dim = config.rotary_head_dim(),
                  .base = config.layer_rotary_base(layer),
                  .percent = config.rotary_percent};
  if (!config.layer_stretches_rope(layer)) return rope;
  rope.interpolation = config.rotary_seq_len_interpolation_factor.value_or(1.0);
  if (config.use_rope_scaling) {
    rope.llama3 = {.factor = config.rope_scaling_factor,
                   .low = config.rope_scaling_low_freq_factor,
                   .high = config.rope_scaling_high_freq_factor,
                   .original_length = config.rope_scaling_original_max_position_embeddings};
  }
  if (config.uses_yarn()) {
    rope.yarn = {.factor = config.rotary_scaling_factor,
                 .original_length = config.yarn_original_max_position_embeddings.value_or(
                     config.max_position_embeddings),
                 .beta_fast = config.yarn_beta_fast,
                 .beta_slow = config.yarn_beta_slow,
                 // As Megatron: the quotient of the two magnitudes, also where one of them is off.
                 .attention_factor =
                     kernels::yarn_magnitude(config.rotary_scaling_factor, config.mscale) /
                     kernels::yarn_magnitude(config.rotary_scaling_factor, config.mscale_all_dim),
                 .truncate = config.yarn_correction_range_round_to_int};
  }
  return rope;
}

}  // namespace

RopeTables::RopeTables(const TransformerConfig& config, int64_t heads, int64_t length, DType dtype,
                       Device device)
    : heads_{.first = 0, .n = heads, .d = config.head_dim()},
      // Latent attention's files have pairs side by side, in Megatron as in Hugging Face.
      pairs_(config.rotary_interleaved || config.latent.any() ? RopePairs::interleaved
                                                              : RopePairs::halves) {
  std::map<std::pair<double, bool>, Tensor> made;  // layers differ in base and stretching at most
  for (int64_t layer = 0; layer < config.all_layers(); ++layer) {
    if (!config.layer_uses_rope(layer)) {
      table_of_layer_.emplace_back();
      continue;
    }
    Tensor& table = made[{config.layer_rotary_base(layer), config.layer_stretches_rope(layer)}];
    if (!table.defined()) table = rope_table(rope_config(config, layer), length, dtype, device);
    table_of_layer_.push_back(table);
  }
}

Tensor RopeTables::apply(Tensor&& qkv, int64_t layer, const RopePositions& at) const {
  return turn(std::move(qkv), layer, heads_, at);
}

Tensor RopeTables::turn(Tensor&& x, int64_t layer, const RopeHeads& heads,
                        const RopePositions& at) const {
  const Tensor& table = table_of_layer_.at(size_t(layer));
  if (!table.defined()) return std::move(x);
  return apply_rope_in_place(std::move(x), table, heads, {.pairs = pairs_, .at = at});
}

Tensor RopeTables::turned(const Tensor& x, int64_t layer, const RopeHeads& heads,
                          const RopePositions& at) const {
  const Tensor& table = table_of_layer_.at(size_t(layer));
  if (!table.defined()) return x;
  return apply_rope(x, table, heads, {.pairs = pairs_, .at = at});
}

}  // namespace phx
