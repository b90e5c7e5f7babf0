#include "phalanx/ops/side_losses.h"

#include <vector>

#include "phalanx/core/autograd.h"

namespace phx {

Tensor with_side_losses(const Tensor& loss, std::span<const Tensor> others) {
  std::vector<Tensor> inputs{loss};
  for (const Tensor& other : others) {
    PHX_CHECK(other.shape() == loss.shape() && other.dtype() == loss.dtype(),
              "with_side_losses: the loss is ", loss.shape(), " of ", loss.dtype(),
              ", but another one is ", other.shape(), " of ", other.dtype());
    inputs.push_back(other);
  }
  return with_backward_many({loss.detach()}, inputs,
                            [n = int(inputs.size())](std::span<const Tensor> dys, GradOut& grad) {
                              for (int i = 0; i < n; ++i) grad.pass(i, dys[0]);
                            })[0];
}

}  // namespace phx
