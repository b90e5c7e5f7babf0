// The way of a checkpoint into a session, under any layout and from any of the formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/loader.h"
#include "phalanx/train/run_state.h"
#include "phalanx/train/session.h"

namespace phx {

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
