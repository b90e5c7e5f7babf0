#include "nn/embedding.h"

#include "ops/embedding.h"

namespace phx {

Embedding::Embedding(int64_t rows, int64_t width, Init init, int64_t padded_rows)
    : weight_(whole({rows, width}, init, padded_rows)) {
  add_parameter("weight", weight_);
}

Tensor Embedding::forward(const Tensor& ids, double scale) {  // [s, b] -> [s, b, width]
  return embedding(weight_.acquire(), ids, {.scale = scale});
}

}  // namespace phx
