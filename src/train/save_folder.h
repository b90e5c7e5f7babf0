// Whether a run may save its checkpoints where it is told to.
#pragma once

#include "phalanx/train/train_config.h"

namespace phx {

// With --auto-resume: where --save holds checkpoints, the run loads the newest valid one of them,
// whatever it was told to load. Returns whether it does.
bool resume_from_save_folder(TrainConfig& train);

// Throws if --save holds checkpoints that this run would not go on from, but write over. On the
// rank that writes.
void check_save_folder(const TrainConfig& train);

}  // namespace phx
