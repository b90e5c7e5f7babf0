// Which checkpoint a run begins from: --load, else --pretrained-checkpoint, in any of the formats.
#pragma once

#include <cstdint>
#include <optional>

#include "phalanx/base/file.h"
#include "phalanx/train/session.h"

namespace phx {

struct CheckpointChoice {
  Path folder;
  int64_t iteration = 0;
  bool finetune = false;  // weights only, from iteration 0
  bool hf = false;        // a Hugging Face folder: weights, and no iterations
  bool megatron = false;
  // Which of a folder of Megatron's; none where the folder is one itself, or has a release.
  std::optional<int64_t> step = {};
};

// What rank 0 finds, on all ranks. Nothing if there is no checkpoint and none is demanded.
std::optional<CheckpointChoice> choose_checkpoint(const Session& session);

}  // namespace phx
