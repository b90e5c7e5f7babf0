// The AdamW call for a piece of a share: one place for the device's and the host's.
#pragma once

#include "phalanx/core/philox.h"
#include "phalanx/kernels/adamw.h"
#include "phalanx/optim/state_share.h"

namespace phx {

inline kernels::AdamWOptions adamw_options(const OptimizerConfig& config, const SharePiece& piece,
                                           uint64_t seed) {
  return {.beta1 = config.adam_beta1,
          .beta2 = config.adam_beta2,
          .eps = config.adam_eps,
          .decay = piece.decays ? 1.0 : 0.0,
          .lr = piece.decoupled ? Slot::decoupled_lr : Slot::lr,
          // A draw a parameter: its name is part of the key.
          .seed = philox_key(seed, piece.site, /*step=*/0),
          .first = piece.first};
}

}  // namespace phx
