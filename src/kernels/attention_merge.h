// Attention over all keys from attention over some and over others. With the log-sum-exp l of each
// part's scores, l = log(exp(l1) + exp(l2)) and
//   o = exp(l1 - l) o1 + exp(l2 - l) o2
#pragma once

#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// o [s, b, n * d] in acc_dtype of part and lse [b, n, s] get what part [s, b, n * d] with part_lse
// [b, n, s] has. A query that saw no key in the part has an lse of -inf or below -1e29 there, but
// not in both.
PHX_KERNEL(void, merge_attention,
           (const Tensor& part, const Tensor& part_lse, const Tensor& o, const Tensor& lse))

// Throws unless shapes and types fit together.
void check_merge(const Tensor& part, const Tensor& part_lse, const Tensor& o, const Tensor& lse);

}  // namespace phx::kernels
