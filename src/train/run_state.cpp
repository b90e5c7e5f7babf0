#include "phalanx/train/run_state.h"

#include <algorithm>
#include <functional>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/log.h"
#include "phalanx/base/option_binder.h"
#include "phalanx/base/options.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/train/data_fingerprint.h"
#include "phalanx/train/megatron_state.h"

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

namespace {

std::vector<FlatState> states_of(const Session& session, bool optimizer) {
  std::vector<FlatState> states = {{"", session.store.weights()}};
  if (!optimizer) return states;
  for (const OptimizerState& state : session.optimizer.states())
    states.push_back({str_cat("optimizer.", state.name, "."), state.flat, state.ranges});
  return states;
}

// The tensors of all ranks under the states' prefixes, from a model that has no memory.
TensorInfos model_tensors(const RunConfig& run, std::span<const FlatState> states) {
  const std::unique_ptr<Model> whole = run.family(run.model);
  TensorInfos infos;
  whole->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const auto dims = parameter.spec().global_shape.dims();
    for (const FlatState& state : states)
      infos[state.prefix + name] = {state.flat.dtype(), {dims.begin(), dims.end()}};
  });
  return infos;
}

// Rank 0's number on all ranks: they decide alike, whatever each of them sees of a file system.
int64_t agreed(const Session& session, int64_t number) {
  if (session.mesh.world() == nullptr) return number;
  const Device device = session.store.weights().device();
  const Tensor value = from_ints(std::span(&number, 1), {1}, DType::i64, device);
  session.mesh.world()->broadcast(value, 0, device.runtime().stream(StreamName::compute));
  copy_to_host(value, &number);
  return number;
}

std::string file_hash(const Path& path) {
  return str_cat("xxh3:", xxh3(as_bytes(read_file(path))));
}

// Fields of the model that may differ between two runs of the same weights: they change what is
// trained on, or how, but not which function the weights are.
const std::set<std::string> kMayDiffer = {"seq_length", "max_position_embeddings",
                                          "attention_dropout", "hidden_dropout", "init_method_std",
                                          "embedding_init_method_std",
                                          // Padding depends on the ranks, and is not saved.
                                          "padded_vocab_size", "make_vocab_size_divisible_by"};

std::string text_of(const nlohmann::json& value) {
  return value.is_null() ? "unset" : json_text(value);
}

nlohmann::json lengths_json(const ScheduleLengths& lengths) {  // in samples
  return {{"warm-up", lengths.warmup},
          {"decay", lengths.decay},
          {"final decay", lengths.wsd_decay},
          {"weight decay", lengths.total}};
}

// What a checkpoint, ours or Megatron's, says beside its tensors.
struct SavedRun {
  std::string path;
  CheckpointInfo info;
};

// A resumed run should be the run that was saved: the model must be the same, and so must the
// schedules unless the command line is told to win.
void compare_options(const SavedRun& saved, const RunConfig& config, bool weights_only) {
  const auto found = saved.info.find("options");
  if (found == saved.info.end() || config.json.empty()) return;
  auto before = parse_json(found->second);
  const auto now = parse_json(config.json);
  // Before there was a choice GELU was always exact.
  if (config.model.activation() == MlpActivation::gelu_tanh && !config.model.openai_gelu &&
      !before.contains("bias_gelu_fusion"))
    before["bias_gelu_fusion"] = false;
  // Of other activations it says nothing.
  const MlpActivation activation = config.model.activation();
  if (config.model.openai_gelu ||
      (activation != MlpActivation::gelu && activation != MlpActivation::gelu_tanh))
    before.erase("bias_gelu_fusion");
  TransformerConfig model;
  OptimizerConfig optim;
  OptionSet model_fields, schedule_fields;
  ModelChoice choice;
  model_fields.add("Model", choice);
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
  const bool model_differs = !different.empty();
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
  PHX_CHECK(different.empty(), saved.path, " was made with other options:", different, "\n  hint: ",
            model_differs ? "its weights fit the model that they were trained for: give the same, "
                            "or --use-checkpoint-args and none of these flags"
                          : "give the same, or --finetune to take weights only, or "
                            "--override-opt-param-scheduler for new schedules");
}

}  // namespace

ScheduleLengths schedule_lengths(const Session& session) {
  const TrainConfig& train = session.config.train;
  const BatchSchedule& batches = session.batch_schedule;
  return schedule_lengths(
      session.config.optim, train.iterations(batches),
      [&](int64_t iterations) { return batches.after(0, iterations); },
      train.train_iters ? std::nullopt : train.train_samples);
}

std::vector<LocalBox> boxes_to_save(const Session& session) {
  const Mesh& mesh = session.mesh;
  const DataParallel& data = session.data_parallel;
  const FlatRange all = session.store.all();
  std::vector<LocalBox> boxes;
  for (const FlatState& state : states_of(session, session.config.train.save_optim))
    for (const Grid grid : {Grid::dense, Grid::expert}) {
      const auto picked = [&](const Parameter& parameter) {
        return parameter.axes().grid == grid && mesh.ownership_of(parameter.axes()).speaks;
      };
      const FlatRange share = share_of(session.store, data.rank(grid), data.size(grid));
      // What a sharded optimizer holds is this rank's alone.
      const bool own = !state.prefix.empty() && data.sharded(grid);
      const auto more = boxes_of(session.store, state, {own ? &all : &share, 1}, picked);
      boxes.insert(boxes.end(), more.begin(), more.end());
    }
  return boxes;
}

CheckpointInfo info_to_save(const Session& session, const RunState& state) {
  const RunConfig& config = session.config;
  const AxisSizes& sizes = session.mesh.sizes();
  CheckpointInfo info{{"state", state.to_json()}};
  if (!config.json.empty()) info["options"] = config.json;
  if (config.train.save_rng) info["rng"] = json_text(nlohmann::json{{"seed", config.train.seed}});
  nlohmann::json tokenizer{{"type", config.data.tokenizer_type}};
  for (const std::string& file :
       {config.data.tokenizer_model, config.data.vocab_file, config.data.merge_file})
    if (!file.empty() && std::filesystem::is_regular_file(file))
      tokenizer["files"][Path(file).filename().string()] = file_hash(file);
  info["tokenizer"] = json_text(tokenizer);
  info["schedule"] = json_text(lengths_json(schedule_lengths(session)));
  const std::string fingerprint = data_fingerprint(config, session.samples.get());
  info["data"] = json_text(nlohmann::json{{"description", session.data_description},
                                          {"fingerprint", parse_json(fingerprint)}});
  // For the curious: nothing reads it.
  info["written_by"] = json_text(nlohmann::json{
      {"world", session.mesh.size()}, {"tp", sizes.tp}, {"pp", sizes.pp}, {"dp", sizes.dp}});
  return info;
}

void save_session(const Path& folder, const Session& session, const RunState& state) {
  CheckpointSaver saver({.folder = folder, .world = session.mesh.world()});
  saver.begin(state.iteration, boxes_to_save(session), info_to_save(session, state));
  saver.wait();
}

Path hf_folder_of(const Path& save, int64_t iteration) {
  return save / "hf" / iteration_name(iteration);
}

namespace {

std::optional<Path> companions_of(const RunConfig& config) {
  for (const std::string& folder : {config.train.load, config.train.pretrained_checkpoint})
    if (!folder.empty() && is_hf_folder(folder)) return folder;
  for (const std::string& folder :
       {config.train.save, config.train.load, config.train.pretrained_checkpoint})
    if (!folder.empty() && std::filesystem::exists(kept_companions(folder)))
      return kept_companions(folder);
  const Path tokenizer = config.data.tokenizer_model;
  if (tokenizer.empty()) return std::nullopt;
  return std::filesystem::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path();
}

}  // namespace

void export_session(const Path& folder, const RunConfig& config, int64_t iteration) {
  export_hf(folder,
            std::make_shared<NativeCheckpoint>(checkpoint_path(config.train.save, iteration)),
            {.model = config.model, .companions = companions_of(config), .replace = true});
}

namespace {

struct Found {
  Path folder;
  int64_t iteration = 0;
  bool finetune = false;
  bool hf = false;  // a Hugging Face folder: weights, and no iterations
  bool megatron = false;
};

std::optional<int64_t> newest_valid(const Path& folder) {
  std::vector<std::string> why_not;
  const std::optional<int64_t> iteration = newest_valid_checkpoint(folder, why_not);
  for (const std::string& why : why_not) log_warning(str_cat("--load-newest-valid: ", why));
  PHX_CHECK(iteration || why_not.empty(), "--load-newest-valid: none of the ", why_not.size(),
            " checkpoints in ", folder.string(), " is whole");
  if (iteration && !why_not.empty())
    log_warning(str_cat("--load-newest-valid: falling back to ",
                        checkpoint_path(folder, *iteration).string()));
  return iteration;
}

std::optional<int64_t> newest(const char* flag, const Path& folder) {
  const std::optional<CheckpointToLoad> found = checkpoint_to_load(folder);
  if (!found) return std::nullopt;
  if (!found->warning.empty()) log_warning(str_cat(flag, ": ", found->warning));
  return found->iteration;
}

// What rank 0 finds, on all ranks.
std::optional<Found> find(const Session& session) {
  const TrainConfig& train = session.config.train;
  constexpr int64_t kNone = -1;
  const auto look = [&](const std::function<std::optional<int64_t>()>& looks) {
    const int64_t own = session.mesh.rank() == 0 ? looks().value_or(kNone) : kNone;
    const int64_t iteration = agreed(session, own);
    return iteration == kNone ? std::nullopt : std::optional(iteration);
  };
  const auto is_hf = [&](const std::string& folder) {
    return !folder.empty() &&
           agreed(session, session.mesh.rank() == 0 && is_hf_folder(folder) ? 1 : 0) != 0;
  };
  if (is_hf(train.load)) return Found{train.load, 0, /*finetune=*/true, /*hf=*/true};
  const auto is_megatron = [&](const std::string& folder, std::optional<int64_t> step) {
    const bool own =
        session.mesh.rank() == 0 && !folder.empty() && is_megatron_folder(folder, step);
    return agreed(session, own ? 1 : 0) != 0;
  };
  if (is_megatron(train.load, train.ckpt_step))
    return Found{train.load, 0, train.finetune, /*hf=*/false, /*megatron=*/true};
  if (!train.load.empty()) {
    const std::optional<int64_t> iteration = look([&]() -> std::optional<int64_t> {
      if (train.ckpt_step) return train.ckpt_step;
      return train.load_newest_valid ? newest_valid(train.load) : newest("--load", train.load);
    });
    if (iteration) return Found{train.load, *iteration, train.finetune};
  }
  if (is_hf(train.pretrained_checkpoint))
    return Found{train.pretrained_checkpoint, 0, /*finetune=*/true, /*hf=*/true};
  if (is_megatron(train.pretrained_checkpoint, {}))
    return Found{train.pretrained_checkpoint, 0, /*finetune=*/true, /*hf=*/false,
                 /*megatron=*/true};
  if (!train.pretrained_checkpoint.empty()) {
    const std::optional<int64_t> iteration =
        look([&] { return newest("--pretrained-checkpoint", train.pretrained_checkpoint); });
    PHX_CHECK(iteration, "--pretrained-checkpoint ", train.pretrained_checkpoint,
              " holds no checkpoint");
    return Found{train.pretrained_checkpoint, *iteration, /*finetune=*/true};
  }
  PHX_CHECK(train.load.empty() || !train.exit_on_missing_checkpoint, "--load ", train.load,
            " holds no checkpoint, and --exit-on-missing-checkpoint was given");
  return std::nullopt;
}

void compare_seed(const NativeCheckpoint& file, const TrainConfig& train) {
  const auto found = file.manifest().info.find("rng");
  if (found == file.manifest().info.end() || !train.load_rng) return;
  const int64_t seed = parse_json(found->second).value("seed", train.seed);
  PHX_CHECK(seed == train.seed, file.path().string(), " was made with --seed ", seed,
            ", and --seed ", train.seed, " is given now: the run would not be the same any more",
            "\n  hint: --seed ", seed, ", or --no-load-rng to go on with another one");
}

// Schedules count samples: with other batches the same flags mean other curves, on which the
// samples consumed so far stand elsewhere.
void compare_schedule(const SavedRun& saved, const Session& session) {
  const OptimizerConfig& optim = session.config.optim;
  const auto found = saved.info.find("schedule");
  if (found == saved.info.end() || optim.override_opt_param_scheduler) return;
  const nlohmann::json before = parse_json(found->second),
                       now = lengths_json(schedule_lengths(session));
  std::set<std::string> matter = {"warm-up"};
  if (optim.lr_decay_style != LrDecayStyle::constant) matter.insert("decay");
  if (optim.lr_decay_style == LrDecayStyle::WSD) matter.insert("final decay");
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

// Samples are found by their number: in other data those that come next are not the ones that were
// not seen yet. Somebody may want that, so it is only said.
void compare_data(const NativeCheckpoint& file, const Session& session) {
  const auto found = file.manifest().info.find("data");
  if (found == file.manifest().info.end()) return;
  const auto data = parse_json(found->second);
  if (!data.contains("fingerprint")) return;
  const std::string now = data_fingerprint(session.config, session.samples.get());
  std::string different;
  for (const std::string& line : fingerprint_differences(json_text(data["fingerprint"]), now))
    different += "\n  " + line;
  if (different.empty()) return;
  log_warning(str_cat(file.path().string(), " was trained on other data:", different,
                      "\n  the run goes on with the samples that have the next numbers now"));
}

bool had_loss_scale(const NativeCheckpoint& file) {
  const auto found = file.manifest().info.find("options");
  if (found == file.manifest().info.end()) return true;
  const auto options = try_parse_json(found->second);
  return !options.is_object() || options.value("fp16", true);
}

Loaded load_hf(Session& session, const Path& folder) {
  const HfModel hf(folder);
  const std::vector<std::string> differences =
      function_differences(hf.config.model, session.config.model);
  std::string text;
  for (const std::string& difference : differences) text += "\n  " + difference;
  PHX_CHECK(differences.empty(), folder.string(),
            " is another model than the options say (there and here):", text);
  const std::vector<FlatState> states = states_of(session, /*optimizer=*/false);
  const TensorInfos model = model_tensors(session.config, states);
  Loaded loaded{.state = {}, .path = folder, .report = {}};
  loaded.report = load_parameters(*hf.tensors, session.store, states,
                                  {.ignored = {}, .convert = true, .model = &model});
  session.optimizer.masters_from_weights();
  return loaded;
}

// Megatron's torch_dist or torch: the run goes on where Megatron's stood, with the optimizer's
// state and the counters. Weights alone are taken only where the flags say so, or the folder is a
// release.
Loaded load_megatron(Session& session, const Found& found) {
  const TrainConfig& train = session.config.train;
  const std::optional<int64_t> step =
      found.folder == Path(train.load) ? train.ckpt_step : std::nullopt;
  const bool wanted = !found.finetune && train.load_optim && !train.skip_train;
  const MegatronModel megatron(
      found.folder, step, session.config.model.vocab_size.value_or(0),
      wanted ? MegatronParts::weights_and_optimizer : MegatronParts::weights);
  const bool finetune = found.finetune || megatron.release;
  const SavedRun saved{megatron.path.string(), megatron_info(megatron)};
  compare_options(saved, session.config, finetune);
  if (!finetune && !train.skip_train) compare_schedule(saved, session);
  Loaded loaded{.state = {}, .path = megatron.path, .report = {}};
  if (!finetune) {
    loaded.state = megatron_run_state(megatron.common_json);
    PHX_CHECK(
        loaded.state, megatron.path.string(),
        " does not say its iteration and how many samples it took, so that a run cannot go on "
        "from it\n  hint: --finetune takes its weights and begins at iteration 0");
  }
  const bool optimizer = wanted && !finetune;
  PHX_CHECK(!optimizer || megatron.has_optimizer, megatron.why_no_optimizer,
            "\n  hint: --no-load-optim goes on without Adam's state, --finetune takes the weights "
            "alone and begins at iteration 0");
  if (optimizer) check_counters(megatron);
  const std::vector<FlatState> states = states_of(session, optimizer);
  const TensorInfos model = model_tensors(session.config, states);
  loaded.report = load_parameters(optimizer ? *megatron.tensors : *megatron.weights, session.store,
                                  states, {.ignored = {}, .convert = !optimizer, .model = &model});
  if (optimizer) return loaded;
  session.optimizer.masters_from_weights();
  if (loaded.state) loaded.state->updates = 0;
  return loaded;
}

}  // namespace

std::optional<Loaded> load_session(Session& session) {
  const TrainConfig& train = session.config.train;
  const std::optional<Found> found = find(session);
  if (!found) return std::nullopt;
  if (found->hf) return load_hf(session, found->folder);
  if (found->megatron) return load_megatron(session, *found);
  // Data-parallel ranks read the same bytes, tensor-parallel ones the same blocks where a matrix is
  // cut by columns; and they may be on one machine.
  const AxisSizes& sizes = session.mesh.sizes();
  const NativeCheckpoint file(find_checkpoint(found->folder, found->iteration),
                              sizes.tp * sizes.cp * sizes.dp == 1 ? Readers::one : Readers::many);
  // One that was converted from elsewhere holds weights, and has no iteration to go on from.
  const bool finetune = found->finetune || !file.manifest().info.contains("state");
  const SavedRun saved{file.path().string(), file.manifest().info};
  compare_options(saved, session.config, finetune);
  if (!finetune) compare_seed(file, train);
  if (!finetune && !train.skip_train) compare_schedule(saved, session);
  if (!finetune && !train.skip_train && session.mesh.rank() == 0) compare_data(file, session);
  const bool optimizer = train.load_optim && !finetune && !train.skip_train;
  const std::vector<FlatState> states = states_of(session, optimizer);
  const TensorInfos model = model_tensors(session.config, states);
  LoadOptions options{.ignored = {}, .convert = !optimizer, .model = &model};
  if (!optimizer) options.ignored = {"optimizer."};
  Loaded loaded{.state = {}, .path = file.path(), .report = {}};
  loaded.report = load_parameters(file, session.store, states, options);
  if (!optimizer) session.optimizer.masters_from_weights();
  if (!finetune) {
    loaded.state = RunState::from_json(file.info("state"));
    if (!optimizer) loaded.state->updates = 0;
    // Older ones say 1 where there was no scale.
    if (!had_loss_scale(file)) loaded.state->scaler.reset();
  }
  return loaded;
}

namespace {

// The model, and the tokenizer beside it.
std::string hf_options(const Path& folder) {
  TransformerConfig model = read_hf_config(folder).model;
  OptionSet fields;
  fields.add("Model", model);
  nlohmann::json options = fields.json();
  // How long sequences are is the run's choice; only the positions end somewhere.
  options.erase("seq_length");
  if (std::filesystem::exists(folder / "tokenizer.json")) {
    options["tokenizer_type"] = "HuggingFaceTokenizer";
    options["tokenizer_model"] = folder.string();
  }
  return json_text(options);
}

}  // namespace

std::string checkpoint_options(const Path& folder, std::optional<int64_t> iteration) {
  if (is_hf_folder(folder)) return hf_options(folder);
  if (is_megatron_folder(folder, iteration))
    return json_text(MegatronModel(folder, iteration, 0, MegatronParts::weights).options());
  if (!iteration)
    if (const auto found = checkpoint_to_load(folder)) iteration = found->iteration;
  PHX_CHECK(iteration, folder.string(), " holds no checkpoint");
  return NativeCheckpoint(find_checkpoint(folder, *iteration)).info("options");
}

}  // namespace phx
