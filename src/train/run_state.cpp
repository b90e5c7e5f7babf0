#include "phalanx/train/run_state.h"

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"

namespace phx {

std::string RunState::to_json() const {
  nlohmann::json values{{"iteration", iteration},
                        {"consumed_train_samples", consumed_samples},
                        {"scheduled_samples", scheduled_samples},
                        {"updates", updates},
                        {"consumed_valid_samples", consumed_valid_samples},
                        {"skipped_iterations", skipped_iterations}};
  if (scaler) {
    values["loss_scale"] = scaler->scale;
    values["growth_tracker"] = scaler->growth;
    values["hysteresis_tracker"] = scaler->hysteresis_left;
  }
  return json_text(values);
}

RunState RunState::from_json(const std::string& text) {
  nlohmann::json values;
  try {
    values = parse_json(text);
    return read(values);
  } catch (const nlohmann::json::exception& error) {
    throw_error(str_cat("the training state is broken: ", error.what()));
  }
}

RunState RunState::read(const nlohmann::json& values) {
  RunState state;
  state.iteration = values.at("iteration");
  state.consumed_samples = values.at("consumed_train_samples");
  state.scheduled_samples = values.at("scheduled_samples");
  state.updates = values.at("updates");
  state.consumed_valid_samples = values.at("consumed_valid_samples");
  state.skipped_iterations = values.at("skipped_iterations");
  if (values.contains("loss_scale"))
    state.scaler = {values.at("loss_scale"), values.at("growth_tracker"),
                    values.at("hysteresis_tracker")};
  return state;
}

}  // namespace phx
