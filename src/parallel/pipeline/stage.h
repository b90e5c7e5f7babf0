// What a pipeline drives: the layers of one rank, in one or several chunks. The engine that
// executes a schedule knows nothing else of a model.
#pragma once

#include <vector>

#include "phalanx/core/named_tensors.h"

namespace phx {

// What passes between two chunks: activations forward, and their gradients back under the same
// names. Every tensor of a message is differentiable.
using StageMessage = NamedTensors;
using MessageSpec = std::vector<TensorSpec>;

class Stage {
 public:
  virtual ~Stage() = default;

  virtual Runtime& runtime() = 0;
  // What a chunk takes from the one before it, and gives to the one behind it: one chunk's output
  // is the next one's input. Empty where the model begins and ends. Micro-batches may differ.
  virtual MessageSpec input(int micro_batch, int chunk) const = 0;
  virtual MessageSpec output(int micro_batch, int chunk) const = 0;

  // The output, without graph. `input` is empty where the model begins: the stage has its tokens.
  // The result is empty where the model ends: the loss stays inside. The stage keeps what its
  // backward needs, and does not write to the result afterwards: it may still be on its way.
  virtual StageMessage forward(int micro_batch, int chunk, const StageMessage& input) = 0;
  // The gradients of the forward's input; empty where the model begins. `doutput` is empty where
  // the model ends: there the backward starts from the loss. With `defer_weights` the gradients of
  // weights are left to weight_backward, which comes later.
  virtual StageMessage backward(int micro_batch, int chunk, const StageMessage& doutput,
                                bool defer_weights) = 0;
  virtual void weight_backward(int micro_batch, int chunk) = 0;
};

}  // namespace phx
