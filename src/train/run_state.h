// The counters of a run, and the way of a session into a checkpoint and back.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/loader.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/optim/loss_scaler.h"
#include "phalanx/optim/schedule.h"
#include "phalanx/train/session.h"

namespace phx {

struct RunState {
  int64_t iteration = 0;          // done
  int64_t consumed_samples = 0;   // of training, skipped iterations included
  int64_t scheduled_samples = 0;  // of successful steps: what schedules count
  int64_t updates = 0;            // successful optimizer steps: Adam's step count
  int64_t consumed_valid_samples = 0;
  int64_t skipped_iterations = 0;
  std::optional<LossScaler::State> scaler;  // of a dynamic loss scale

  std::string to_json() const;
  static RunState from_json(const std::string& text);
  static RunState read(const nlohmann::json& values);
};

// What a rank of the session writes into a checkpoint: of what several ranks hold, each its share,
// unless this rank writes all that it holds.
enum class SavedBy { all_ranks, this_rank };
std::vector<LocalBox> boxes_to_save(const Session& session, SavedBy by = SavedBy::all_ranks);
// Whether this rank holds every element of the run's state, so that it can save without the others.
bool holds_whole_state(const Session& session);
// What a checkpoint says beside its tensors.
CheckpointInfo info_to_save(const Session& session, const RunState& state);
ScheduleLengths schedule_lengths(const Session& session);

// All of it and at once, on every rank of the session; a run saves through its Trainer.
void save_session(const Path& folder, const Session& session, const RunState& state);

// SAVE/hf/iter_%07d; and the checkpoint of that iteration as a Hugging Face folder there. The
// tokenizer comes from the folder that the weights began from, or from where --tokenizer-model is.
Path hf_folder_of(const Path& save, int64_t iteration);
void export_session(const Path& folder, const RunConfig& config, int64_t iteration);

// Loads what the train config asks for (--load, --ckpt-step, --finetune, --no-load-optim), under
// any layout. Nothing if there is no checkpoint to load and none is demanded. On every rank.
struct Loaded {
  std::optional<RunState> state;  // none: only weights were taken, the run begins at iteration 0
  Path path;
  LoadReport report;
};
std::optional<Loaded> load_session(Session& session);

// The options of a checkpoint as JSON, for --use-checkpoint-args: of --ckpt-step, or the newest. Of
// a Hugging Face folder those of the model and its tokenizer.
std::string checkpoint_options(const Path& folder, std::optional<int64_t> iteration);

}  // namespace phx
