// What checkpoints of older versions mean now. Whenever an option or a counter changes its meaning,
// or a new option changes what a run without it did, the change is undone here for what was saved
// before. Every reader of saved options goes through here: resuming, --use-checkpoint-args, the
// commands that open a checkpoint. (Options that became implied or refused need nothing: the
// catalogue knows them, see OptionSet::load_json.)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "phalanx/train/run_state.h"

namespace phx {

// The options of a checkpoint, {"hidden_size": 4096, ..}, in the words of today.
void migrate_options(nlohmann::json& options);
std::string migrated_options(const std::string& json_text);

// The counters, given the options that were saved beside them (empty: none were).
void migrate_state(RunState& state, const std::string& options_json);

}  // namespace phx
