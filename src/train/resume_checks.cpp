#include "phalanx/train/resume_checks.h"

#include <algorithm>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/log.h"
#include "phalanx/base/options.h"
#include "phalanx/train/data_fingerprint.h"
#include "phalanx/train/older_checkpoints.h"
#include "phalanx/train/save_session.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

// Fields of the model that may differ between two runs of the same weights: they change what is
// trained on, or how, but not which function the weights are.
const std::set<std::string> kMayDiffer = {
    "seq_length", "max_position_embeddings", "attention_dropout", "hidden_dropout",
    "init_method_std", "embedding_init_method_std", "mtp_loss_scaling_factor",
    // Padding depends on the ranks, and is not saved.
    "padded_vocab_size", "make_vocab_size_divisible_by",
    // How experts are reached, kept evenly used, and limited.
    "moe_token_dispatcher_type", "moe_expert_rank_capacity_factor",
    "moe_pad_expert_input_to_capacity", "moe_router_load_balancing_type", "moe_aux_loss_coeff",
    "moe_z_loss_coeff", "moe_expert_capacity_factor", "moe_token_drop_policy",
    "moe_router_force_load_balancing", "moe_router_bias_update_rate", "moe_router_dtype",
    "moe_per_layer_logging"};

std::string text_of(const nlohmann::json& value) {
  return value.is_null() ? "unset" : json_text(value);
}

}  // namespace

void compare_options(const SavedRun& saved, const RunConfig& config, bool weights_only) {
  const auto found = saved.info.find("options");
  if (found == saved.info.end() || config.json.empty()) return;
  auto before = parse_json(found->second);
  migrate_options(before);
  const auto now = parse_json(config.json);
  // Of other activations than GELU the fusion says nothing.
  const MlpActivation activation = config.model.activation();
  if (config.model.openai_gelu ||
      (activation != MlpActivation::gelu && activation != MlpActivation::gelu_tanh))
    before.erase("bias_gelu_fusion");
  TransformerConfig model;
  OptimizerConfig optim;
  OptionSet model_fields, schedule_fields, run_fields;
  ModelChoice choice;
  OwnOptions of_model = config.family.options;
  model_fields.add("Model", choice);
  model_fields.add("Model", model);
  of_model.add_to(model_fields, "Model");
  schedule_fields.add("Optimizer", optim);
  // Own options of what else the run was put together from. Those of a dataset are part of its
  // fingerprint.
  OwnOptions of_loss = config.loss().options, of_rate, of_rule;
  if (const auto* entry = find_entry(config.catalogue.lr_schedules, config.optim.lr_decay_style))
    of_rate = entry->options;
  if (const auto* entry = find_entry(config.catalogue.optimizers, config.optim.optimizer))
    of_rule = entry->options;
  of_loss.add_to(run_fields, "Loss");
  if (config.train.load_optim) of_rule.add_to(run_fields, "Optimizer");
  OptionSet rate_fields;
  of_rate.add_to(rate_fields, "Optimizer");
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
  const bool model_differs = !different.empty();
  if (!weights_only && !config.train.skip_train) {
    nlohmann::json fields = run_fields.json();
    fields["loss"] = nullptr;
    if (config.train.load_optim) fields["optimizer"] = nullptr;
    compare(fields, [](const std::string&) { return false; });
  }
  if (!weights_only && !config.train.skip_train && !config.optim.override_opt_param_scheduler) {
    compare(schedule_fields.json(), [](const std::string& key) {
      return !(key.starts_with("lr") || key == "min_lr" || key.starts_with("decoupled_") ||
               key.find("weight_decay") != std::string::npos);
    });
    compare(rate_fields.json(), [](const std::string&) { return false; });
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
  PHX_CHECK(different.empty(), saved.path, " was made with other options:", different, "\n  hint: ",
            model_differs ? "its weights fit the model that they were trained for: give the same, "
                            "or --use-checkpoint-args and none of these flags"
                          : "give the same, or --finetune to take weights only, or "
                            "--override-opt-param-scheduler for new schedules");
}

void compare_seed(const SavedRun& saved, const TrainConfig& train) {
  const auto found = saved.info.find("rng");
  if (found == saved.info.end() || !train.load_rng) return;
  const int64_t seed = parse_json(found->second).value("seed", train.seed);
  PHX_CHECK(seed == train.seed, saved.path, " was made with --seed ", seed, ", and --seed ",
            train.seed, " is given now: the run would not be the same any more",
            "\n  hint: --seed ", seed, ", or --no-load-rng to go on with another one");
}

void compare_schedule(const SavedRun& saved, const Session& session) {
  const OptimizerConfig& optim = session.config.optim;
  const auto found = saved.info.find("schedule");
  if (found == saved.info.end() || optim.override_opt_param_scheduler) return;
  const nlohmann::json before = parse_json(found->second),
                       now = lengths_json(schedule_lengths(session));
  std::set<std::string> matter = {"warm-up"};
  if (optim.lr_decay_style != "constant") matter.insert("decay");
  if (optim.lr_decay_style == "WSD") matter.insert("final decay");
  if (optim.weight_decay_incr_style != WeightDecayStyle::constant) matter.insert("weight decay");
  std::string different;
  for (const std::string& key : matter)
    if (before.contains(key) && before[key] != now[key])
      different += str_cat("\n  ", key, ": ", value_text(before[key]),
                           " samples in the checkpoint, ", value_text(now[key]), " now");
  PHX_CHECK(different.empty(), saved.path,
            " was trained with other schedules, which count samples:", different,
            "\n  hint: the same length and --global-batch-size (now ",
            session.batch_schedule.largest(),
            "), or lengths in samples, or --override-opt-param-scheduler for the new curves");
}

void compare_data(const SavedRun& saved, const Session& session) {
  const auto found = saved.info.find("data");
  if (found == saved.info.end()) return;
  const auto data = parse_json(found->second);
  if (!data.contains("fingerprint")) return;
  const std::string now = data_fingerprint(session.config, session.samples.get());
  std::string different;
  for (const std::string& line : fingerprint_differences(json_text(data["fingerprint"]), now))
    different += "\n  " + line;
  if (different.empty()) return;
  log_warning(str_cat(saved.path, " was trained on other data:", different,
                      "\n  the run goes on with the samples that have the next numbers now"));
}

}  // namespace phx
