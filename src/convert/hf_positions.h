// The part of config.json that says where tokens stand and how far they see: rotary frequencies and
// sliding windows. Both the older keys ("rope_theta", "rope_scaling") and the newer ones
// ("rope_parameters") are read; the older ones are written, because every version reads them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "phalanx/convert/family.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

std::vector<const char*> position_keys();

// Adds to `ours` (our options' JSON), which has num_layers and max_position_embeddings already.
// What is not computed here is added to `problems`.
void take_positions(const Family& family, const nlohmann::json& config, nlohmann::json& ours,
                    std::vector<std::string>& problems);

// Writes what the family has keys for; what it has none for is left out.
void give_positions(const Family& family, const TransformerConfig& model, nlohmann::json& config);

}  // namespace phx
