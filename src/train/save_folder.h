// Whether a run may save its checkpoints where it is told to.
#pragma once

#include <string>

#include "phalanx/train/train_config.h"

namespace phx {

// With --auto-resume: where --save holds checkpoints, the run loads the newest one whose files are
// all there, and --load, --finetune, --ckpt-step and --no-load-optim do not count. Says so in a
// line; empty: the run begins as it is told to.
std::string resume_from_save_folder(TrainConfig& train);

// Throws if --save holds checkpoints that this run would not go on from, but write over. On the
// rank that writes.
void check_save_folder(const TrainConfig& train);

}  // namespace phx
