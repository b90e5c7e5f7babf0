#include "phalanx/train/placement_config.h"

namespace phx {

PlacementConfig placement_config(const TransformerConfig& model, const ParallelConfig& ranks) {
  const auto whole = [](const std::optional<int64_t>& value) -> std::optional<int> {
    if (!value) return std::nullopt;
    return int(*value);
  };
  return {.num_layers = int(model.num_layers),
          .stages = int(ranks.pipeline_model_parallel_size),
          .chunks = int(ranks.num_virtual_stages_per_pipeline_rank.value_or(1)),
          .layers_per_chunk = whole(ranks.num_layers_per_virtual_pipeline_stage),
          .first_stage_layers = whole(ranks.decoder_first_pipeline_num_layers),
          .last_stage_layers = whole(ranks.decoder_last_pipeline_num_layers),
          .account_for_embedding = ranks.account_for_embedding_in_pipeline_split,
          .account_for_loss = ranks.account_for_loss_in_pipeline_split,
          .layout = ranks.pipeline_model_parallel_layout,
          .num_mtp_layers = int(model.mtp_num_layers),
          .position_table = model.has_position_table()};
}

}  // namespace phx
