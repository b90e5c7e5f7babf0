// A model with the weights of a source and what its routers keep, ready to be asked. It does not
// train: there are no gradients.
#pragma once

#include <memory>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/models/model.h"
#include "phalanx/nn/parameter_store.h"

namespace phx {

struct LoadedModel {
  // For texts of up to `length` tokens. Weights are converted to `dtype`, and tensors of the
  // optimizer left alone.
  LoadedModel(std::unique_ptr<Model> made, const TensorSource& source, DType dtype, Device device,
              int64_t length);

  std::unique_ptr<Model> model;
  ParameterStore store, buffers;
};

}  // namespace phx
