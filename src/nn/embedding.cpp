#include "nn/embedding.h"

#include "ops/embedding.h"

namespace phx {

namespace {

ParameterSpec table(const Shape& shape, Init init, Replica replica) {
  ParameterSpec spec = whole(shape, init);
  spec.replica = replica;
  return spec;
}

}  // namespace

Embedding::Embedding(int64_t rows, int64_t width, Init init, Replica replica)
    : weight_(table({rows, width}, init, replica)) {
  add_parameter("weight", weight_);
}

Tensor Embedding::forward(const Tensor& ids, double scale) {  // [s, b] -> [s, b, width]
  return embedding(weight_.acquire(), ids, {.scale = scale});
}

}  // namespace phx
