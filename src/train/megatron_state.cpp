#include "train/megatron_state.h"

#include "base/error.h"
#include "base/json.h"
#include "base/option_binder.h"
#include "base/options.h"
#include "optim/optimizer_config.h"
#include "train/train_config.h"

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
  Json step;
  const auto look = [&](std::initializer_list<const char*> path) {
    if (!step.is_number()) step = at_path(common, path);
  };
  look({"optimizer", "optimizer", "param_groups", "first", "step"});
  look({"optimizer", "param_groups", "first", "step"});
  // Without the distributed optimizer it stands beside the groups.
  look({"optimizer", "optimizer", "state", "common_step"});
  look({"optimizer", "state", "common_step"});
  state.updates = integer_or(step, state.iteration);
  const Json scaler = at_path(common, {"optimizer", "grad_scaler"});
  if (at_path(scaler, {"scale"}).is_number()) {
    state.scaler = {at_path(scaler, {"scale"}).get<double>(),
                    integer_or(at_path(scaler, {"growth_tracker"}), 0),
                    integer_or(at_path(scaler, {"hysteresis_tracker"}), 0)};
  }
  return state;
}

namespace {

bool same(const Json& options, const char* a, const char* b) {
  return options.contains(a) && options.contains(b) && options[a] == options[b];
}

// Megatron writes into its arguments what unset ones come to.
void unset_derived(Json& options) {
  if (options.contains("train_samples")) options.erase("train_iters");
  if (same(options, "lr_decay_iters", "train_iters")) options.erase("lr_decay_iters");
  if (same(options, "lr_decay_samples", "train_samples")) options.erase("lr_decay_samples");
  if (options.value("weight_decay_incr_style", "") == "constant") {
    for (const char* key : {"start_weight_decay", "end_weight_decay"})
      if (same(options, key, "weight_decay")) options.erase(key);
  }
}

}  // namespace

Json megatron_run_options(const MegatronModel& model) {
  TransformerConfig shape;
  OptionSet fields;
  fields.add("Model", shape);
  ParseReport report;
  fields.load_json(model.options(), report);
  PHX_CHECK(report.ok(), model.path.native(), ": the arguments of its run cannot be read:\n",
            format_problems(report.problems));
  shape.resolve();
  shape.padded_vocab_size.reset();
  Json options = fields.json();

  // Names are the same here and there; values are of the same kind in these.
  const Json args = parse_json(model.common_json).at("args");
  for (const char* key : {"micro_batch_size",
                          "global_batch_size",
                          "train_iters",
                          "train_samples",
                          "seed",
                          "bf16",
                          "fp16",
                          "lr",
                          "min_lr",
                          "decoupled_lr",
                          "decoupled_min_lr",
                          "lr_decay_style",
                          "lr_decay_iters",
                          "lr_decay_samples",
                          "lr_warmup_iters",
                          "lr_warmup_samples",
                          "lr_warmup_fraction",
                          "lr_warmup_init",
                          "lr_wsd_decay_style",
                          "lr_wsd_decay_iters",
                          "lr_wsd_decay_samples",
                          "weight_decay",
                          "start_weight_decay",
                          "end_weight_decay",
                          "weight_decay_incr_style",
                          "apply_wd_to_qk_layernorm",
                          "clip_grad",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_eps",
                          "loss_scale",
                          "initial_loss_scale",
                          "min_loss_scale",
                          "loss_scale_window",
                          "hysteresis"}) {
    const auto found = args.find(key);
    if (found != args.end() && !found->is_null()) options[key] = *found;
  }
  unset_derived(options);
  return options;
}

CheckpointInfo megatron_info(const MegatronModel& model) {
  CheckpointInfo info;
  const Json common = parse_json(model.common_json);
  if (common.value("args", Json()).is_object())
    info["options"] = json_text(megatron_run_options(model));
  const Json scheduler = common.value("opt_param_scheduler", Json());
  Json lengths = Json::object();
  for (const auto& [ours, theirs] :
       {std::pair("warm-up", "lr_warmup_steps"), std::pair("decay", "lr_decay_steps"),
        std::pair("weight decay", "wd_incr_steps")}) {
    const Json length = scheduler.is_object() ? scheduler.value(theirs, Json()) : Json();
    if (length.is_number()) lengths[ours] = length;
  }
  if (!lengths.empty()) info["schedule"] = json_text(lengths);
  return info;
}

}  // namespace phx
