// What a pipeline drives: the layers of one rank, in one or several chunks. The engine that
// executes a schedule knows nothing else of a model.
#pragma once

#include "core/tensor.h"

namespace phx {

// What passes between stages, in both directions: activations, and their gradients.
struct MessageSpec {
  Shape shape;
  DType dtype = DType::f32;
};

class Stage {
 public:
  virtual ~Stage() = default;

  virtual Runtime& runtime() = 0;
  // The same on both sides of a link; micro-batches may differ from each other.
  virtual MessageSpec message(int micro_batch) const = 0;

  // The output, without graph. `input` is undefined where the model begins: the stage has its
  // tokens. The result is undefined where the model ends: the loss stays inside. The stage keeps
  // what its backward needs, and does not write to the result afterwards: it may still be on its
  // way.
  virtual Tensor forward(int micro_batch, int chunk, const Tensor& input) = 0;
  // The gradient of the forward's input; undefined where the model begins. `doutput` is undefined
  // where the model ends: there the backward starts from the loss. With `defer_weights` the
  // gradients of weights are left to weight_backward, which comes later.
  virtual Tensor backward(int micro_batch, int chunk, const Tensor& doutput,
                          bool defer_weights) = 0;
  virtual void weight_backward(int micro_batch, int chunk) = 0;
};

}  // namespace phx
