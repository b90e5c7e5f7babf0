// Whether the run that is to be resumed is the run that was saved. Each check throws, or warns
// where somebody may want the difference, with what differs and the way out.
#pragma once

#include <string>

#include "phalanx/checkpoint/manifest.h"
#include "phalanx/train/session.h"

namespace phx {

// What a checkpoint, ours or Megatron's, says beside its tensors.
struct SavedRun {
  std::string path;
  CheckpointInfo info;
};

// The model must be the same, and so must the schedules unless the command line is told to win.
void compare_options(const SavedRun& saved, const RunConfig& config, bool weights_only);

void compare_seed(const SavedRun& saved, const TrainConfig& train);

// Schedules count samples: with other batches the same flags mean other curves, on which the
// samples consumed so far stand elsewhere.
void compare_schedule(const SavedRun& saved, const Session& session);

// Samples are found by their number: in other data those that come next are not the ones that were
// not seen yet. Somebody may want that, so it is a warning.
void compare_data(const SavedRun& saved, const Session& session);

}  // namespace phx
