#include "phalanx/train/megatron_state.h"

#include "phalanx/base/error.h"
#include "phalanx/base/frequency_pattern.h"
#include "phalanx/base/json.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/optim/optimizer_config.h"
#include "phalanx/optim/schedule.h"
#include "phalanx/train/train_config.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// The value at a path of keys; null where one of them is missing. Of a list it is the first.
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

// Megatron has two optimizers, numbered, where experts are on ranks of their own.
std::vector<Json> optimizers(const Json& common) {
  const Json optimizer = at_path(common, {"optimizer"});
  if (!optimizer.is_object() || !optimizer.contains("0")) return {optimizer};
  std::vector<Json> chain;
  for (const auto& [number, one] : optimizer.items()) chain.push_back(one);
  return chain;
}

// Adam's count of steps of one optimizer; null where there is none. A group of parameters that
// another pipeline stage has may not count them.
Json steps_of(const Json& outer) {
  const Json inner = at_path(outer, {"optimizer"});
  for (const Json& optimizer : {inner, outer}) {
    const Json groups = at_path(optimizer, {"param_groups"});
    if (groups.is_array())
      for (const Json& group : groups)
        if (const Json step = at_path(group, {"step"}); step.is_number()) return step;
  }
  // Without the distributed optimizer it stands beside the groups.
  for (const Json& optimizer : {inner, outer})
    if (const Json step = at_path(optimizer, {"state", "common_step"}); step.is_number())
      return step;
  return {};
}

// Null too where optimizers have not counted alike.
Json adam_step(const Json& common) {
  Json step;
  for (const Json& optimizer : optimizers(common)) {
    const Json here = steps_of(optimizer);
    if (!step.is_null() && !here.is_null() && here != step) return {};
    if (step.is_null()) step = here;
  }
  return step;
}

Json scheduled_samples(const Json& common) {
  return at_path(common, {"opt_param_scheduler", "num_steps"});
}

}  // namespace

void check_counters(const MegatronModel& model) {
  const Json common = parse_json(model.common_json);
  const char* missing = !adam_step(common).is_number()           ? "Adam's count of steps"
                        : !scheduled_samples(common).is_number() ? "the position of its schedules"
                                                                 : nullptr;
  PHX_CHECK(missing == nullptr, model.path.native(), " does not say ", missing,
            ", so that a run cannot go on with its optimizer state\n  hint: --no-load-optim (of "
            "convert import: --weights-only) leaves optimizer state behind");
}

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
  state.scheduled_samples = integer_or(scheduled_samples(common), state.consumed_samples);
  state.updates = integer_or(adam_step(common), 0);
  const Json scaler = at_path(optimizers(common)[0], {"grad_scaler"});
  if (at_path(scaler, {"scale"}).is_number()) {
    const int64_t hysteresis =
        integer_or(at_path(common, {"args", "hysteresis"}), OptimizerConfig().hysteresis);
    state.scaler = {at_path(scaler, {"scale"}).get<double>(),
                    integer_or(at_path(scaler, {"growth_tracker"}), 0),
                    integer_or(at_path(scaler, {"hysteresis_tracker"}), hysteresis)};
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

namespace {

// Those of one learning rate: matrices, whose weights decay, and the rest. Megatron finds a group
// by these values; the keys of torch's AdamW and of the fused kernels' stand side by side.
void add_groups(Json& groups, const OptimizerConfig& config, double lr, double max_lr,
                double min_lr, double weight_decay, int64_t step, bool experts) {
  for (const double decayed : {1.0, 0.0}) {
    if (experts && decayed == 0.0) continue;  // they have matrices only
    groups.push_back({{"is_expert_parallel", experts},
                      {"default_config", max_lr == *config.lr && min_lr == config.min_lr},
                      {"wd_mult", decayed},
                      {"lr_mult", 1.0},
                      {"is_decoupled_lr", false},
                      {"max_lr", max_lr},
                      {"min_lr", min_lr},
                      {"lr", lr},
                      {"betas", {config.adam_beta1, config.adam_beta2}},
                      {"eps", config.adam_eps},
                      {"weight_decay", decayed * weight_decay},
                      {"step", step},
                      {"bias_correction", true},
                      {"amsgrad", false},
                      {"maximize", false},
                      {"foreach", nullptr},
                      {"capturable", false},
                      {"differentiable", false},
                      {"fused", nullptr},
                      {"decoupled_weight_decay", true}});
  }
}

// `experts`: of the optimizer for experts that are on ranks of their own.
Json optimizer_common(const OptimizerConfig& config, const ScheduleLengths& lengths,
                      const RunState& state, bool experts) {
  const int64_t samples = state.scheduled_samples;
  const double decay = weight_decay(config, lengths, samples);
  Json groups = Json::array();
  add_groups(groups, config, learning_rate(config, lengths, samples), *config.lr, config.min_lr,
             decay, state.updates, experts);
  if (config.decoupled_lr && !experts)
    add_groups(groups, config, decoupled_learning_rate(config, lengths, samples),
               *config.decoupled_lr, config.decoupled_min_lr.value_or(config.min_lr), decay,
               state.updates, experts);
  // With the distributed optimizer and in mixed precision the groups are one level deeper.
  const Json inner{{"param_groups", groups},
                   {"state", {{"common_step", {{"$tensor", state.updates}}}}}};
  Json optimizer = inner;
  optimizer["optimizer"] = inner;
  optimizer["param_state_sharding_type"] = "fully_reshardable";
  if (state.scaler)
    optimizer["grad_scaler"] = {{"scale", {{"$tensor", {state.scaler->scale}}}},
                                {"growth_tracker", state.scaler->growth},
                                {"hysteresis_tracker", state.scaler->hysteresis_left}};
  return optimizer;
}

Json scheduler_common(const OptimizerConfig& config, const ScheduleLengths& lengths,
                      int64_t samples) {
  const Json names = [&] {
    OptimizerConfig copy = config;
    OptionSet fields;
    fields.add("Optimizer", copy);
    return fields.json();
  }();
  return {{"max_lr", *config.lr},
          {"min_lr", config.min_lr},
          {"lr_warmup_steps", lengths.warmup},
          {"lr_decay_steps", lengths.decay},
          {"lr_decay_style", names.at("lr_decay_style")},
          {"num_steps", samples},
          {"start_wd", config.first_weight_decay()},
          {"end_wd", config.last_weight_decay()},
          {"wd_incr_style", names.at("weight_decay_incr_style")},
          {"wd_incr_steps", lengths.total}};
}

// Megatron has one kind of balancing as a text and its coefficient as a number, and layers with
// experts as a number or a list.
void expert_arguments(Json& args) {
  for (const char* key : {"moe_router_load_balancing_type", "moe_aux_loss_coeff"})
    if (const auto found = args.find(key);
        found != args.end() && found->is_array() && found->size() == 1)
      *found = Json(found->at(0));
  if (const auto found = args.find("moe_layer_freq"); found != args.end() && found->is_string()) {
    const auto pattern = FrequencyPattern::parse(found->get<std::string>());
    *found = pattern.is_list() ? Json(pattern.list) : Json(pattern.every);
  }
}

}  // namespace

MegatronCommon megatron_common(const CheckpointInfo& info, int64_t padded_vocab_size,
                               bool optimizer, int64_t expert_ranks, const std::string& format) {
  Json args = Json::object();
  // What is not set is left to Megatron's --use-checkpoint-args, which would take "" as a value.
  const Json options = parse_json(info.at("options"));
  for (const auto& [key, value] : options.items())
    if (!value.is_null() && value != "") args[key] = value;
  args["padded_vocab_size"] = padded_vocab_size;
  // Names that Megatron gives them in 2026.
  if (args.contains("norm_epsilon")) args["layernorm_epsilon"] = args["norm_epsilon"];
  if (args.contains("apply_layernorm_1p"))
    args["layernorm_zero_centered_gamma"] = args["apply_layernorm_1p"];
  expert_arguments(args);
  // Also where it is 1: the run may have had its experts on several ranks.
  if (args.contains("num_experts")) args["expert_model_parallel_size"] = expert_ranks;
  args["ckpt_format"] = format;
  // It would ask for states of its generators, and for the optimizer's.
  args["no_save_rng"] = true;
  args["no_save_optim"] = !optimizer;
  Json common{{"content_metadata",
               {{"distrib_optim_sharding_type", "fully_reshardable"},
                {"distrib_optim_fully_reshardable_mem_efficient", false},
                {"singleton_local_shards", false},
                {"chained_optim_avoid_prefix", true}}}};
  if (const auto found = info.find("state"); found != info.end()) {
    const RunState state = RunState::from_json(found->second);
    args["consumed_train_samples"] = state.consumed_samples;
    args["consumed_valid_samples"] = state.consumed_valid_samples;
    args["skipped_train_samples"] = 0;
    if (optimizer) {
      OptimizerConfig config;
      OptionSet fields;
      fields.add("Optimizer", config);
      Json known = fields.json();
      for (auto& [key, value] : known.items())
        if (args.contains(key)) value = args[key];
      ParseReport report;
      fields.load_json(known, report);
      PHX_CHECK(report.ok() && config.lr, "the checkpoint's options do not say its schedules:\n",
                format_problems(report.problems));
      const auto schedule = info.find("schedule");
      PHX_CHECK(schedule != info.end(), "the checkpoint does not say how long its schedules are");
      const Json lengths = parse_json(schedule->second);
      const ScheduleLengths samples{.warmup = lengths.value("warm-up", 0.0),
                                    .decay = lengths.value("decay", int64_t{0}),
                                    .wsd_decay = lengths.value("final decay", int64_t{0}),
                                    .total = lengths.value("weight decay", int64_t{0})};
      const Json dense = optimizer_common(config, samples, state, /*experts=*/false);
      const Json experts = optimizer_common(config, samples, state, /*experts=*/true);
      common["optimizer"] = expert_ranks > 1 ? Json{{"$numbered", {dense, experts}}} : dense;
      common["opt_param_scheduler"] = scheduler_common(config, samples, state.scheduled_samples);
    }
  }
  return {json_text(args), json_text(common)};
}

}  // namespace phx
