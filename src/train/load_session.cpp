#include "phalanx/train/load_session.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/base/options.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/torch/torch_kind.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/train/checkpoint_choice.h"
#include "phalanx/train/frozen_modules.h"
#include "phalanx/train/megatron_state.h"
#include "phalanx/train/older_checkpoints.h"
#include "phalanx/train/resume_checks.h"
#include "phalanx/train/same_checkpoint.h"
#include "phalanx/train/save_session.h"
#include "phalanx/transformer/transformer_fields.h"

namespace phx {
namespace {

// The tensors of all ranks under the states' prefixes (of frozen parameters the weights alone),
// from a model that has no memory; of its buffers those that the source has.
TensorInfos model_tensors(const RunConfig& run, std::span<const FlatState> states,
                          const TensorSource& source) {
  const std::unique_ptr<Model> whole = run.family(run.model);
  TensorInfos infos, buffers;
  const auto shape_of = [](const Parameter& parameter) {
    const auto dims = parameter.spec().global_shape.dims();
    return std::vector<int64_t>(dims.begin(), dims.end());
  };
  whole->for_each_parameter([&](const std::string& name, Parameter& parameter) {
    const bool frozen = is_frozen(run.train.freeze_modules, name);
    for (const FlatState& state : states)
      if (state.prefix.empty() || !frozen)
        infos[state.prefix + name] = {state.flat.dtype(), shape_of(parameter)};
  });
  whole->for_each_buffer([&](const std::string& name, Parameter& buffer) {
    buffers[name] = {DType::f32, shape_of(buffer)};
  });
  return with_buffers(std::move(infos), source, buffers);
}

// A run may go on with other ways to balance, which need no loads of the step before, and with
// frozen parameters, which need no optimizer state.
std::vector<std::string> tensors_not_wanted(const RunConfig& run, const TensorSource& source,
                                            const TensorInfos& model) {
  std::vector<std::string> names;
  for (const auto& [name, info] : source.tensors()) {
    const bool frozen = name.starts_with("optimizer.") && is_frozen(run.train.freeze_modules, name);
    if ((frozen || name.ends_with(".router.global_tokens_per_expert")) && !model.contains(name))
      names.push_back(name);
  }
  return names;
}

LoadReport load_weights(const TensorSource& source, Session& session,
                        std::span<const FlatState> states, const LoadOptions& options) {
  LoadReport report = load_parameters(source, session.store, states, options);
  const ParameterStore& frozen = session.frozen;
  if (!frozen.parameters().empty()) {
    const FlatState weights{"", frozen.weights()};
    report.bytes += load_parameters(source, frozen, {&weights, 1}, options).bytes;
  }
  load_buffers(source, session.buffers);
  return report;
}

Loaded load_hf(Session& session, const Path& folder) {
  check_same_checkpoint(session, folder, folder_checksum(folder));
  const HfModel hf(folder, session.config.model.mtp_num_layers);
  const std::vector<std::string> differences =
      function_differences(hf.config.model, session.config.model);
  std::string text;
  for (const std::string& difference : differences) text += "\n  " + difference;
  PHX_CHECK(differences.empty(), folder.string(),
            " is another model than the options say (there and here):", text);
  const std::vector<FlatState> states = states_of(session, /*optimizer=*/false);
  const TensorInfos model = model_tensors(session.config, states, *hf.tensors);
  Loaded loaded{.state = {}, .path = folder, .report = {}};
  loaded.report =
      load_weights(*hf.tensors, session, states, {.ignored = {}, .convert = true, .model = &model});
  session.optimizer.masters_from_weights();
  return loaded;
}

// A rank that cannot even find its checkpoint takes part, so that no other waits for it. Where none
// of them can, each says why.
void compare_checkpoints(const Session& session, const Path& folder,
                         const std::function<Path()>& find, uint64_t (*checksum)(const Path&)) {
  Path path;
  std::exception_ptr failure;
  try {
    path = find();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  check_same_checkpoint(session, path.empty() ? folder : path, failure ? 0 : checksum(path));
  if (failure) std::rethrow_exception(failure);
}

constexpr const char* kWithoutOptimizer =
    "\n  hint: --no-load-optim goes on without Adam's state, --finetune takes the weights alone "
    "and "
    "begins at iteration 0";

// What was frozen has no optimizer state to go on with: none of its states, while others have them.
void check_unfrozen(const NativeCheckpoint& file, const RunConfig& run) {
  std::set<std::string> trained;
  for (const auto& [name, info] : file.tensors()) {
    constexpr std::string_view kPrefix = "optimizer.";
    if (name.starts_with(kPrefix)) trained.insert(name.substr(name.find('.', kPrefix.size()) + 1));
  }
  run.family(run.model)->for_each_parameter([&](const std::string& name, Parameter&) {
    PHX_CHECK(
        trained.contains(name) || is_frozen(run.train.freeze_modules, name) ||
            !file.tensors().contains(name),
        file.path().string(), " holds ", name,
        " without optimizer state: it was frozen (--freeze-modules), and is to be trained now",
        kWithoutOptimizer);
  });
}

// Megatron's torch_dist or torch: the run goes on where Megatron's stood, with the optimizer's
// state and the counters. Weights alone are taken only where the flags say so, or the folder is a
// release.
Loaded load_megatron(Session& session, const CheckpointChoice& found) {
  const TrainConfig& train = session.config.train;
  compare_checkpoints(
      session, found.folder, [&] { return torch_checkpoint_kind(found.folder, found.step).path; },
      folder_checksum);
  const bool wanted = !found.finetune && train.load_optim && !train.skip_train;
  const MegatronModel megatron(
      found.folder, found.step, session.config.model.vocab_size.value_or(0),
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
  PHX_CHECK(!optimizer || megatron.has_optimizer, megatron.why_no_optimizer, kWithoutOptimizer);
  PHX_CHECK(!optimizer || session.config.optim.optimizer == "adam", megatron.path.string(),
            " holds the state of Adam, which --optimizer ", session.config.optim.optimizer,
            " cannot go on with", kWithoutOptimizer);
  if (optimizer) check_counters(megatron);
  const std::vector<FlatState> states = states_of(session, optimizer);
  const TensorSource& tensors = optimizer ? *megatron.tensors : *megatron.weights;
  const TensorInfos model = model_tensors(session.config, states, tensors);
  loaded.report = load_weights(tensors, session, states,
                               {.ignored = tensors_not_wanted(session.config, tensors, model),
                                .convert = !optimizer,
                                .model = &model});
  if (optimizer) return loaded;
  session.optimizer.masters_from_weights();
  if (loaded.state) loaded.state->updates = 0;
  return loaded;
}

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

// Those beside a broken one whose manifest and files are there in full size: "4, 2".
std::string others_that_are_whole(const CheckpointChoice& broken) {
  std::string list;
  for (const int64_t iteration : checkpoints_in(broken.folder)) {
    if (iteration == broken.iteration) continue;
    try {
      const NativeCheckpoint other(find_checkpoint(broken.folder, iteration));
      list += str_cat(list.empty() ? "" : ", ", iteration);
    } catch (const Error&) {  // this one is broken, too
    }
  }
  return list;
}

NativeCheckpoint open_native(const CheckpointChoice& found, Readers readers) {
  try {
    return NativeCheckpoint(find_checkpoint(found.folder, found.iteration), readers);
  } catch (const Error& error) {
    const std::string others = others_that_are_whole(found);
    if (others.empty()) throw;
    throw_error(str_cat(error.what(), "\n  hint: checkpoints of other iterations in ",
                        found.folder.string(), " have all of their files: ", others,
                        "; --ckpt-step takes one of them, --load-newest-valid reads and takes the "
                        "newest that is whole"));
  }
}

}  // namespace

std::optional<Loaded> load_session(Session& session) {
  const TrainConfig& train = session.config.train;
  const std::optional<CheckpointChoice> found = choose_checkpoint(session);
  if (!found) return std::nullopt;
  if (found->hf) return load_hf(session, found->folder);
  if (found->megatron) return load_megatron(session, *found);
  // Data-parallel ranks read the same bytes, tensor-parallel ones the same blocks where a matrix is
  // cut by columns; and they may be on one machine.
  const AxisSizes& sizes = session.mesh.sizes();
  compare_checkpoints(
      session, found->folder, [&] { return find_checkpoint(found->folder, found->iteration); },
      native_checksum);
  const NativeCheckpoint file =
      open_native(*found, sizes.tp * sizes.cp * sizes.dp == 1 ? Readers::one : Readers::many);
  // One that was converted from elsewhere holds weights, and has no iteration to go on from.
  const bool finetune = found->finetune || !file.manifest().info.contains("state");
  const SavedRun saved{file.path().string(), file.manifest().info};
  compare_options(saved, session.config, finetune);
  if (!finetune) compare_seed(saved, train);
  if (!finetune && !train.skip_train) compare_schedule(saved, session);
  if (!finetune && !train.skip_train && session.mesh.rank() == 0) compare_data(saved, session);
  const bool optimizer = train.load_optim && !finetune && !train.skip_train;
  const bool has_optimizer = std::ranges::any_of(
      file.tensors(), [](const auto& tensor) { return tensor.first.starts_with("optimizer."); });
  PHX_CHECK(!optimizer || has_optimizer, file.path().string(),
            " holds no optimizer state: it was saved with --no-save-optim", kWithoutOptimizer);
  const std::vector<FlatState> states = states_of(session, optimizer);
  const TensorInfos model = model_tensors(session.config, states, file);
  if (optimizer) check_unfrozen(file, session.config);
  LoadOptions options{.ignored = tensors_not_wanted(session.config, file, model),
                      .convert = !optimizer,
                      .model = &model};
  if (!optimizer) options.ignored.push_back("optimizer.");
  Loaded loaded{.state = {}, .path = file.path(), .report = {}};
  loaded.report = load_weights(file, session, states, options);
  if (!optimizer) session.optimizer.masters_from_weights();
  if (!finetune) {
    loaded.state = RunState::from_json(file.info("state"));
    if (!optimizer) loaded.state->updates = 0;
    const auto options_then = saved.info.find("options");
    migrate_state(*loaded.state, options_then == saved.info.end() ? "" : options_then->second);
  }
  return loaded;
}

std::string checkpoint_options(const Path& folder, std::optional<int64_t> iteration) {
  if (is_hf_folder(folder)) return hf_options(folder);
  if (is_megatron_folder(folder, iteration))
    return json_text(MegatronModel(folder, iteration, 0, MegatronParts::weights).options());
  if (!iteration)
    if (const auto found = checkpoint_to_load(folder)) iteration = found->iteration;
  PHX_CHECK(iteration, folder.string(), " holds no checkpoint");
  return migrated_options(NativeCheckpoint(find_checkpoint(folder, *iteration)).info("options"));
}

}  // namespace phx
