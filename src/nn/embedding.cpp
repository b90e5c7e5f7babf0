#include "phalanx/nn/embedding.h"

#include "phalanx/ops/embedding.h"

namespace phx {

namespace {

ParameterSpec table(const Shape& shape, Init init, const ParameterAxes& axes) {
  ParameterSpec spec = whole(shape, init);
  spec.axes = axes;
  return spec;
}

}  // namespace

Embedding::Embedding(int64_t rows, int64_t width, Init init, const ParameterAxes& axes)
    : weight_(table({rows, width}, init, axes)) {
  add_parameter("weight", weight_);
}

Tensor Embedding::forward(const Tensor& ids, double scale) {  // [s, b] -> [s, b, width]
  return embedding(weight_.acquire(BackwardReads::nothing), ids, {.scale = scale});
}

}  // namespace phx
