#include "phalanx/kernels/attention_merge.h"

namespace phx::kernels {

void check_merge(const Tensor& part, const Tensor& part_lse, const Tensor& o, const Tensor& lse) {
  const DType acc = acc_dtype(part.dtype());
  PHX_CHECK(part.rank() == 3 && o.shape() == part.shape() && o.dtype() == acc,
            "merge_attention: o should be ", part.shape(), " in ", acc, " as the part is in ",
            part.dtype(), ", but it is ", o.shape(), " in ", o.dtype());
  PHX_CHECK(lse.rank() == 3 && lse.dim(0) == part.dim(1) && lse.dim(2) == part.dim(0) &&
                lse.dim(1) > 0 && part.dim(2) % lse.dim(1) == 0 &&
                part_lse.shape() == lse.shape() && lse.dtype() == acc && part_lse.dtype() == acc,
            "merge_attention: both lse should be [", part.dim(1), ", heads, ", part.dim(0), "] in ",
            acc, ", but they are ", lse.shape(), " in ", lse.dtype(), " and ", part_lse.shape(),
            " in ", part_lse.dtype());
}

void merge_attention(const Tensor& part, const Tensor& part_lse, const Tensor& o,
                     const Tensor& lse) {
  check_merge(part, part_lse, o, lse);
  if (part.numel() == 0) return;
  PHX_DISPATCH(part.device(), merge_attention, part, part_lse, o, lse);
}

}  // namespace phx::kernels
