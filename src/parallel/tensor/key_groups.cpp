#include "phalanx/parallel/tensor/key_groups.h"

#include "phalanx/core/autograd.h"

namespace phx {

Tensor gather_key_group(const Tensor& part, int64_t query_columns, int64_t head_dim,
                        Communicator& sharers) {
  const int64_t q = query_columns, d = head_dim, k = sharers.size(), slice = d / k;
  PHX_CHECK(part.rank() == 3 && d % k == 0 && part.dim(-1) == q + 2 * slice,
            "gather_key_group: ", k, " ranks share a key head of ", d,
            ", so a part should be [s, b, ", q + 2 * slice, "], but it is ", part.shape());
  const int64_t s = part.dim(0), b = part.dim(1);
  const Stream stream = part.runtime().stream(StreamName::compute);

  Tensor y = empty({s, b, q + 2 * d}, part.dtype(), part.device());
  {
    Tensor mine = empty({s, b, 2 * slice}, part.dtype(), part.device());
    Tensor all = empty({k * s, b, 2 * slice}, part.dtype(), part.device());
    copy_columns(part, q, mine);
    sharers.all_gather(mine, all, stream);
    copy_columns(part, 0, q, y, 0);
    for (int64_t r = 0; r < k; ++r) {
      copy_columns(all.rows(r * s, s), 0, slice, y, q + r * slice);
      copy_columns(all.rows(r * s, s), slice, slice, y, q + d + r * slice);
    }
  }
  return with_backward(y, {part},
                       [q, d, k, slice, s, b, stream, &sharers](const Tensor& dy, GradOut& grad) {
                         // Every sharer's queries used the whole k and v: their gradients are
                         // summed, and each keeps its slice.
                         Tensor all = empty({k * s, b, 2 * slice}, dy.dtype(), dy.device());
                         Tensor mine = empty({s, b, 2 * slice}, dy.dtype(), dy.device());
                         for (int64_t r = 0; r < k; ++r) {
                           copy_columns(dy, q + r * slice, slice, all.rows(r * s, s), 0);
                           copy_columns(dy, q + d + r * slice, slice, all.rows(r * s, s), slice);
                         }
                         sharers.reduce_scatter(all, mine, stream);
                         Tensor& dpart = grad.out(0);
                         copy_columns(dy, 0, q, dpart, 0);
                         copy_columns(mine, 0, 2 * slice, dpart, q);
                       });
}

}  // namespace phx
