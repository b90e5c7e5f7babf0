#include "phalanx/train/save_session.h"

#include <algorithm>
#include <filesystem>

#include "phalanx/base/json.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/convert/hf_model.h"
#include "phalanx/train/data_fingerprint.h"

namespace phx {
namespace {

std::string file_hash(const Path& path) {
  return str_cat("xxh3:", xxh3(as_bytes(read_file(path))));
}

}  // namespace

std::vector<FlatState> states_of(const Session& session, bool optimizer) {
  std::vector<FlatState> states = {{"", session.store.weights(), session.store.kept_weights()}};
  if (!optimizer) return states;
  for (const OptimizerState& state : session.optimizer.states())
    states.push_back({str_cat("optimizer.", state.name, "."), state.flat, state.ranges});
  return states;
}

ScheduleLengths schedule_lengths(const Session& session) {
  const TrainConfig& train = session.config.train;
  const BatchSchedule& batches = session.batch_schedule;
  return schedule_lengths(
      session.config.optim, train.iterations(batches),
      [&](int64_t iterations) { return batches.after(0, iterations); },
      train.train_iters ? std::nullopt : train.train_samples);
}

nlohmann::json lengths_json(const ScheduleLengths& lengths) {
  return {{"warm-up", lengths.warmup},
          {"decay", lengths.decay},
          {"final decay", lengths.wsd_decay},
          {"weight decay", lengths.total}};
}

namespace {

// Of a store that every data-parallel rank has all of: each writes a share.
std::vector<LocalBox> boxes_of_whole(const ParameterStore& store, const Mesh& mesh, SavedBy by) {
  std::vector<LocalBox> boxes;
  if (store.parameters().empty()) return boxes;
  for (const Grid grid : {Grid::dense, Grid::expert}) {
    const FlatRange share = by == SavedBy::this_rank
                                ? store.all()
                                : share_of(store, mesh.data_rank(grid), mesh.data_size(grid));
    const auto more = boxes_of(store, {"", store.weights()}, {&share, 1}, [&](const Parameter& p) {
      return p.axes().grid == grid && mesh.ownership_of(p.axes()).counts(Division::among_all);
    });
    boxes.insert(boxes.end(), more.begin(), more.end());
  }
  return boxes;
}

}  // namespace

std::vector<LocalBox> boxes_to_save(const Session& session, SavedBy by) {
  const Mesh& mesh = session.mesh;
  const DataParallel& data = session.data_parallel;
  const FlatRange all = session.store.all();
  std::vector<LocalBox> boxes;
  for (const FlatState& state : states_of(session, session.config.train.save_optim))
    for (const Grid grid : {Grid::dense, Grid::expert}) {
      const Division division =
          state.prefix.empty() ? data.division_of_weights(grid) : data.division_of_state(grid);
      // What a rank holds a piece of is this rank's alone; what all hold they share.
      const bool own = by == SavedBy::this_rank || division != Division::none;
      const auto picked = [&](const Parameter& parameter) {
        return parameter.axes().grid == grid &&
               mesh.ownership_of(parameter.axes())
                   .counts(by == SavedBy::this_rank || division == Division::none
                               ? Division::among_all
                               : division);
      };
      const FlatRange share = share_of(session.store, mesh.data_rank(grid), mesh.data_size(grid));
      const auto more = boxes_of(session.store, state, {own ? &all : &share, 1}, picked);
      boxes.insert(boxes.end(), more.begin(), more.end());
    }
  for (const ParameterStore* whole : {&session.frozen, &session.buffers}) {
    const auto more = boxes_of_whole(*whole, mesh, by);
    boxes.insert(boxes.end(), more.begin(), more.end());
  }
  return boxes;
}

bool holds_whole_state(const Session& session) {
  if (session.mesh.sizes().pp > 1 || session.data_parallel.sharded()) return false;
  const auto is_whole = [](const Parameter* parameter) {
    int64_t held = 0;
    for (const Piece& piece : parameter->spec().pieces) held += piece.rows * piece.cols;
    return held == parameter->spec().global_shape.numel();
  };
  return std::ranges::all_of(session.store.parameters(), is_whole) &&
         std::ranges::all_of(session.frozen.parameters(), is_whole);
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
  info["written_by"] = json_text(nlohmann::json{{"world", session.mesh.size()},
                                                {"tp", sizes.tp},
                                                {"cp", sizes.cp},
                                                {"pp", sizes.pp},
                                                {"dp", sizes.dp}});
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

}  // namespace phx
