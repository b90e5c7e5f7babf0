#include "phalanx/kernels/embedding.h"

namespace phx::kernels::meta {

void embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options, Tensor& y) {
  table.runtime().count({.flops = options.scale == 1.0 ? 0 : y.numel(),
                         .bytes = ids.bytes() + 2 * y.bytes()});  // the rows read, and y
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions&,
                        Tensor& workspace, const Sink& dtable) {
  dy.runtime().count(
      {.flops = dy.numel(),
       .bytes = ids.bytes() + dy.bytes() + 2 * workspace.bytes() + dtable.tensor.bytes()});
}

}  // namespace phx::kernels::meta
