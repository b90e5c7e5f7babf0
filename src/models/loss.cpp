#include "phalanx/models/loss.h"

namespace phx {

Loss cross_entropy() {
  return {.name = "cross-entropy",
          .help = "of the next token",
          .sum = [](const LossCall& call, const OwnOptions&) {
            return lm_loss(call.hidden, call.weight, call.labels, call.loss_mask, call.grad_scale,
                           call.head)
                .loss_sum;  // [1]
          }};
}

std::vector<Loss> standard_losses() { return {cross_entropy()}; }

}  // namespace phx
