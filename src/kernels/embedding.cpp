#include "phalanx/kernels/embedding.h"

#include "phalanx/base/math.h"

namespace phx::kernels {

void embedding(const Tensor& table, const Tensor& ids, const EmbeddingOptions& options, Tensor& y) {
  PHX_DISPATCH(table.device(), embedding, table, ids, options, y);
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options,
                        Tensor& workspace, const Sink& dtable) {
  PHX_DISPATCH(dy.device(), embedding_backward, ids, dy, options, workspace, dtable);
}

Shape embedding_workspace(const Tensor& ids, int64_t rows) {
  const int64_t n = ids.numel();
  if (ids.device().target() == DeviceKind::cuda) {
    constexpr int64_t kArrays = 4;
    return {kArrays * round_up(n * 4, 256) + embedding_sort_bytes(n)};
  }
  return {(rows + 1 + n) * int64_t{sizeof(int64_t)}};  // where each row begins; the ids in order
}

void embedding_backward(const Tensor& ids, const Tensor& dy, const EmbeddingOptions& options,
                        const Sink& dtable) {
  Tensor workspace = empty(embedding_workspace(ids, dtable.tensor.dim(0)), DType::u8, dy.device(),
                           Purpose::workspace);
  embedding_backward(ids, dy, options, workspace, dtable);
}

}  // namespace phx::kernels
