// The part of config.json that says which layers have experts, and how evenly the router should use
// them. How many experts there are and how wide they are is in the family's table of keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "phalanx/convert/family.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

std::vector<const char*> expert_keys(const Family& family);  // none if it has no experts

// Adds to `ours` (our options' JSON), which has num_layers already. What is wrong is added to
// `problems`.
void take_experts(const Family& family, const nlohmann::json& config, nlohmann::json& ours,
                  std::vector<std::string>& problems);

// Writes what the family has keys for; what it has none for is left out.
void give_experts(const Family& family, const TransformerConfig& model, nlohmann::json& config);

}  // namespace phx
