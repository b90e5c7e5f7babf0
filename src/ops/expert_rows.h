// Rows of tokens in the order of their experts (kernels/expert_rows.h), and the experts' products,
// as differentiable functions.
#pragma once

#include "phalanx/kernels/expert_rows.h"
#include "phalanx/ops/linear.h"

namespace phx {

using kernels::ExpertActivation;

// Where rows stand: see kernels::sort_by_expert.
struct ExpertOrder {
  Tensor row_of;     // i32 [t, k]
  Tensor choice_of;  // i32 [r]
  Tensor offsets;    // i32 [e + 1]
};
// indices i32 [t, k]; of the experts [first, first + count); room for `rows` rows.
ExpertOrder order_by_expert(const Tensor& indices, int64_t first, int64_t count, int64_t rows);

// x [t, ..] -> [r, ..]: each token's row once for each of its choices.
Tensor to_expert_rows(const Tensor& x, const ExpertOrder& order);
// probs [t, k] -> [r]
Tensor to_expert_weights(const Tensor& probs, const ExpertOrder& order);
// y [r, ..] -> [t, ..]: the sum of each token's rows.
Tensor from_expert_rows(const Tensor& y, const ExpertOrder& order);

// x [n, ..] -> [r, ..], y[i] = x[source[i]] or zeros; `place` is the inverse: i32 [r], [n].
Tensor reorder_rows(const Tensor& x, const Tensor& source, const Tensor& place);

// x [r, in], w [e * out, in], the experts' matrices one below the other -> [r, out]
// `remake` makes x again in the backward: it is not kept.
Tensor grouped_linear(const Tensor& x, const Tensor& w, const Tensor& offsets,
                      const Remake& remake = {});
// probs act(x): [r, 2f] or [r, f], [r] -> [r, f]
Tensor weighted_activation(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                           const ExpertActivation& activation);

// Each row times its factor, which is in acc_dtype: [t, h], [t] -> [t, h]
Tensor scale_rows(const Tensor& x, const Tensor& factors);

}  // namespace phx
