// The way of a session into a checkpoint.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"
#include "phalanx/checkpoint/parameter_boxes.h"
#include "phalanx/optim/schedule.h"
#include "phalanx/train/run_state.h"
#include "phalanx/train/session.h"

namespace phx {

// The flat buffers of a rank that a checkpoint holds, with the prefix of their tensors' names.
std::vector<FlatState> states_of(const Session& session, bool optimizer);
// What a rank of the session writes into a checkpoint: of what several ranks hold, each its share,
// unless this rank writes all that it holds.
enum class SavedBy { all_ranks, this_rank };
std::vector<LocalBox> boxes_to_save(const Session& session, SavedBy by = SavedBy::all_ranks);
// Whether this rank holds every element of the run's state, so that it can save without the others.
bool holds_whole_state(const Session& session);
// What a checkpoint says beside its tensors.
CheckpointInfo info_to_save(const Session& session, const RunState& state);

ScheduleLengths schedule_lengths(const Session& session);
nlohmann::json lengths_json(
    const ScheduleLengths& lengths);  // in samples, as a checkpoint has them

// All of it and at once, on every rank of the session; a run saves through its Trainer.
void save_session(const Path& folder, const Session& session, const RunState& state);

// SAVE/hf/iter_%07d; and the checkpoint of that iteration as a Hugging Face folder there. The
// tokenizer comes from the folder that the weights began from, or from where --tokenizer-model is.
Path hf_folder_of(const Path& save, int64_t iteration);
void export_session(const Path& folder, const RunConfig& config, int64_t iteration);

}  // namespace phx
