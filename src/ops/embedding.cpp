#include "phalanx/ops/embedding.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor embedding(const Tensor& table, const Tensor& ids,
                 const EmbeddingOptions& options) {  // [rows, h], [s, b] -> [s, b, h]
  PHX_CHECK(table.rank() == 2, "embedding: the table is ", table.shape(),
            ", but should be [vocabulary, h]");
  PHX_CHECK(ids.dtype() == DType::i64 || ids.dtype() == DType::i32, "embedding: the ids are ",
            ids.dtype(), ", but should be i64 or i32");
  Shape shape = ids.shape();
  shape.push_back(table.dim(1));
  Tensor y = empty(shape, table.dtype(), table.device());
  kernels::embedding(table, ids, options, y);
  return with_backward(y, {table}, [ids, options](const Tensor& dy, GradOut& grad) {
    // Only a weight's gradient: a schedule may put it off.
    grad.later(0, [ids, options, dy](const Sink& dtable) {  // dy: [s, b, h]
      kernels::embedding_backward(ids, dy, options, dtable);
    });
  });
}

}  // namespace phx
