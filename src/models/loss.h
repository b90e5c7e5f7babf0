// What --loss NAME means: how a language model's last hidden states become a loss.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "phalanx/base/own_options.h"
#include "phalanx/ops/lm_loss.h"

namespace phx {

struct LossCall {
  Tensor hidden;            // [t, h], after the final norm
  Tensor weight;            // [v/tp, h] of the output layer
  Tensor labels;            // [t]; -100 does not count
  Tensor loss_mask;         // [t], or undefined: all labels count
  Tensor grad_scale;        // [1], or undefined: no gradients are wanted
  LmLossOptions head = {};  // how the vocabulary is cut over ranks, and the cap of the logits
};

struct Loss {
  std::string name, help;
  // -> [1], the sum over the tokens that count. Its backward, started with 1, gives the gradients
  // of grad_scale times that sum (ops/lm_loss.h).
  std::function<Tensor(const LossCall& call, const OwnOptions& options)> sum;
  OwnOptions options = {};
};

Loss cross_entropy();
std::vector<Loss> standard_losses();

}  // namespace phx
