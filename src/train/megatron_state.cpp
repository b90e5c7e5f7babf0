#include "train/megatron_state.h"

#include "base/json.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// The value at a path of keys; null where one of them is missing. A number leads into a list.
Json at_path(Json value, std::initializer_list<const char*> path) {
  for (const char* key : path) {
    if (value.is_array())
      value = value.empty() ? Json() : Json(value[0]);
    else
      value = value.is_object() ? value.value(key, Json()) : Json();
  }
  return value;
}

int64_t integer_or(const Json& value, int64_t otherwise) {
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return static_cast<int64_t>(value.get<double>());
  return otherwise;
}

}  // namespace

std::optional<RunState> megatron_run_state(const std::string& common_json) {
  const Json common = parse_json(common_json);
  const Json iteration = at_path(common, {"iteration"});
  const Json samples = at_path(common, {"args", "consumed_train_samples"});
  if (!iteration.is_number_integer() || !samples.is_number_integer()) return std::nullopt;
  RunState state;
  state.iteration = iteration.get<int64_t>();
  state.consumed_samples = samples.get<int64_t>();
  state.consumed_valid_samples = integer_or(at_path(common, {"args", "consumed_valid_samples"}), 0);
  // Megatron's schedules count samples too.
  state.scheduled_samples =
      integer_or(at_path(common, {"opt_param_scheduler", "num_steps"}), state.consumed_samples);
  Json step = at_path(common, {"optimizer", "optimizer", "param_groups", "first", "step"});
  if (!step.is_number()) step = at_path(common, {"optimizer", "param_groups", "first", "step"});
  state.updates = integer_or(step, state.iteration);
  const Json scaler = at_path(common, {"optimizer", "grad_scaler"});
  if (at_path(scaler, {"scale"}).is_number()) {
    state.scaler = {at_path(scaler, {"scale"}).get<double>(),
                    integer_or(at_path(scaler, {"growth_tracker"}), 0),
                    integer_or(at_path(scaler, {"hysteresis_tracker"}), 0)};
  }
  return state;
}

}  // namespace phx
