#include "phalanx/train/older_checkpoints.h"

#include "phalanx/base/json.h"

namespace phx {

void migrate_options(nlohmann::json& options) {
  // GELU was always exact before --bias-gelu-fusion was an option.
  if (!options.contains("bias_gelu_fusion")) options["bias_gelu_fusion"] = false;
}

std::string migrated_options(const std::string& text) {
  nlohmann::json options = parse_json(text);
  migrate_options(options);
  return json_text(options);
}

void migrate_state(RunState& state, const std::string& options_json) {
  // Runs without fp16 used to save a loss scale of 1, which no longer stands for "none".
  const auto options = try_parse_json(options_json);
  const bool scaled = !options.is_object() || options.value("fp16", true);
  if (!scaled) state.scaler.reset();
}

}  // namespace phx
