#include "phalanx/kernels/cuda/grouped.h"

namespace phx::kernels::cuda {

void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                    Tensor&, const Sink& c) {
  if (!hopper_grouped_matmul(a, w, offsets, transposed, c))
    plain_grouped_matmul(a, w, offsets, transposed, c);
}

void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets, Tensor&,
                            const Sink& dw) {
  if (!hopper_grouped_weight_product(dy, x, offsets, dw))
    plain_grouped_weight_product(dy, x, offsets, dw);
}

}  // namespace phx::kernels::cuda
