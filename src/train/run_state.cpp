#include "train/run_state.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/option_binder.h"
#include "base/options.h"
#include "checkpoint/one_file.h"

namespace phx {

std::string RunState::to_json() const {
  return nlohmann::json{{"iteration", iteration},
                        {"consumed_train_samples", consumed_samples},
                        {"scheduled_samples", scheduled_samples},
                        {"updates", updates},
                        {"consumed_valid_samples", consumed_valid_samples},
                        {"skipped_iterations", skipped_iterations},
                        {"loss_scale", scaler.scale},
                        {"growth_tracker", scaler.growth},
                        {"hysteresis_tracker", scaler.hysteresis_left}}
      .dump();
}

RunState RunState::from_json(const std::string& text) {
  nlohmann::json values;
  try {
    values = nlohmann::json::parse(text);
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
  state.scaler = {values.at("loss_scale"), values.at("growth_tracker"),
                  values.at("hysteresis_tracker")};
  return state;
}

namespace {

std::vector<FlatState> states_of(const Session& session, bool optimizer) {
  std::vector<FlatState> states = {{"", const_cast<Session&>(session).store.weights()}};
  if (!optimizer) return states;
  for (const OptimizerState& state : session.optimizer.states()) {
    PHX_CHECK(state.flat.numel() == session.store.weights().numel(),
              "--optimizer-offload-fraction ", session.config.optim.optimizer_offload_fraction,
              " leaves optimizer state in two memories, and such is not saved or loaded yet\n  "
              "hint: --optimizer-offload-fraction 1, or --no-save-optim and --no-load-optim");
    states.push_back({str_cat("optimizer.", state.name, "."), state.flat});
  }
  return states;
}

// Fields of the model that may differ between two runs of the same weights: they change what is
// trained on, or how, but not which function the weights are.
const std::set<std::string> kMayDiffer = {"seq_length",        "max_position_embeddings",
                                          "attention_dropout", "hidden_dropout",
                                          "init_method_std",   "embedding_init_method_std"};

std::string text_of(const nlohmann::json& value) {
  return value.is_null() ? "unset" : value.dump();
}

// A resumed run should be the run that was saved: the model must be the same, and so must the
// schedules unless the command line is told to win.
void compare_options(const SafetensorsFile& file, const RunConfig& config, bool weights_only) {
  const auto found = file.metadata().find("options");
  if (found == file.metadata().end() || config.json.empty()) return;
  const auto before = nlohmann::json::parse(found->second),
             now = nlohmann::json::parse(config.json);
  TransformerConfig model;
  OptimizerConfig optim;
  OptionSet model_fields, schedule_fields;
  model_fields.add("Model", model);
  schedule_fields.add("Optimizer", optim);
  std::string different;
  const auto compare = [&](const nlohmann::json& fields, const auto& skip) {
    for (const auto& [key, unused] : fields.items()) {
      if (skip(key) || !before.contains(key) || !now.contains(key) || before[key] == now[key])
        continue;
      std::string flag = key;
      std::ranges::replace(flag, '_', '-');
      different += str_cat("\n  --", flag, ": ", text_of(before[key]), " in the checkpoint, ",
                           text_of(now[key]), " now");
    }
  };
  compare(model_fields.json(), [](const std::string& key) { return kMayDiffer.contains(key); });
  if (!weights_only && !config.train.skip_train && !config.optim.override_opt_param_scheduler) {
    compare(schedule_fields.json(), [](const std::string& key) {
      return !(key.starts_with("lr") || key == "min_lr" || key.starts_with("decoupled_") ||
               key.find("weight_decay") != std::string::npos);
    });
    // Without a length of its own the decay ends with the run.
    const bool follows = now.value("lr_decay_style", "") != "constant" &&
                         !config.optim.lr_decay_iters && !config.optim.lr_decay_samples;
    for (const char* key : {"train_iters", "train_samples"}) {
      if (!follows || !before.contains(key) || !now.contains(key) || before[key] == now[key])
        continue;
      different +=
          str_cat("\n  the run's length, which the learning rate follows: ", text_of(before[key]),
                  " in the checkpoint, ", text_of(now[key]), " now");
    }
  }
  PHX_CHECK(different.empty(), file.path().string(), " was made with other options:", different,
            "\n  hint: give the same, or --finetune to take weights only, or "
            "--override-opt-param-scheduler "
            "for new schedules");
}

}  // namespace

void save_session(const Path& folder, const Session& session, const RunState& state) {
  save_checkpoint(
      folder, state.iteration, session.store, states_of(session, session.config.train.save_optim),
      {{"format", "phalanx-1"}, {"options", session.config.json}, {"state", state.to_json()}});
}

std::optional<Loaded> load_session(Session& session) {
  const TrainConfig& train = session.config.train;
  Path folder = train.load;
  bool finetune = train.finetune;
  std::optional<int64_t> iteration;
  if (!folder.empty()) iteration = train.ckpt_step ? train.ckpt_step : latest_checkpoint(folder);
  if (!iteration && !train.pretrained_checkpoint.empty()) {
    folder = train.pretrained_checkpoint;
    iteration = latest_checkpoint(folder);
    finetune = true;
    PHX_CHECK(iteration.has_value(), "--pretrained-checkpoint ", folder.string(),
              " holds no checkpoint");
  }
  if (!iteration) {
    PHX_CHECK(train.load.empty() || !train.exit_on_missing_checkpoint, "--load ", train.load,
              " holds no checkpoint, and --exit-on-missing-checkpoint was given");
    return std::nullopt;
  }
  const SafetensorsFile file(checkpoint_file(folder, *iteration));
  compare_options(file, session.config, finetune);
  const bool optimizer = train.load_optim && !finetune && !train.skip_train;
  const std::vector<std::string> ignored = {"optimizer."};
  load_checkpoint(file, session.store, states_of(session, optimizer),
                  optimizer ? std::span<const std::string>() : ignored);
  if (!optimizer) session.optimizer.masters_from_weights();
  Loaded loaded{.state = {}, .file = file.path()};
  if (!finetune) {
    const auto& metadata = file.metadata();
    PHX_CHECK(metadata.contains("state"), file.path().string(),
              " has no training state in its metadata");
    loaded.state = RunState::from_json(metadata.at("state"));
    if (!optimizer) loaded.state->updates = 0;
  }
  return loaded;
}

}  // namespace phx
