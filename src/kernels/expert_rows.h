// Rows of tokens in the order of their experts, and back.
//
// A token has k choices, indices i32 [t, k]; -1 is a choice that is dropped or belongs to another
// rank. Sorted, the rows of expert 0 come first; an expert's rows stand in the order of the tokens.
// How many there are is known on the device alone: tensors of rows have room for `r` of them, of
// which offsets[e] are used, and what lies behind those is not read.
#pragma once

#include "phalanx/core/autograd.h"
#include "phalanx/kernels/activation.h"
#include "phalanx/kernels/dispatch.h"

namespace phx::kernels {

// indices i32 [t, k] of experts [first, first + e), others are dropped -> row_of i32 [t, k], -1 if
// dropped; choice_of i32 [r], the choice (token * k + j) that a row is, -1 behind the last;
// offsets i32 [e + 1]. More choices than r is an error on cpu; on cuda those behind row r are
// dropped. There the sort's arrays lie in the workspace.
void sort_by_expert(const Tensor& indices, int64_t first, Tensor& row_of, Tensor& choice_of,
                    Tensor& offsets);
PHX_KERNEL(void, sort_by_expert,
           (const Tensor& indices, int64_t first, Tensor& workspace, Tensor& row_of,
            Tensor& choice_of, Tensor& offsets))

// y[i] = x[source[i] / per_row], zeros where source is -1: x [n, ..], source i32 [r], y [r, ..]
PHX_KERNEL(void, gather_rows, (const Tensor& x, const Tensor& source, int64_t per_row, Tensor& y))
// out[i] = the sum over j of x[row_of[i, j]] without those that are -1, in the order of j, rounded
// once: x [r, ..], row_of i32 [t, k], out [t, ..] sink
PHX_KERNEL(void, sum_rows, (const Tensor& x, const Tensor& row_of, const Sink& out))

// How many rows each expert has: offsets i32 [e + 1] -> counts i32 [e]
PHX_KERNEL(void, expert_counts, (const Tensor& offsets, Tensor& counts))
// Rows that came in blocks of their senders, each block sorted by expert: counts i32 [g, all
// experts], of which [first, first + e) are meant -> source i32 [r], which puts all rows in the
// order of the experts (an expert's in the order of the senders), its inverse place i32 [r], both
// -1 behind the last; offsets i32 [e + 1]. The workspace of cuda holds where each sender's rows of
// an expert begin, before and after.
void merge_by_expert(const Tensor& counts, int64_t first, Tensor& source, Tensor& place,
                     Tensor& offsets);
PHX_KERNEL(void, merge_by_expert,
           (const Tensor& counts, int64_t first, Tensor& workspace, Tensor& source, Tensor& place,
            Tensor& offsets))

// Products of an expert's rows with its own matrix, expert by expert; offsets i32 [e + 1].
//   grouped_matmul          a [r, k], w [e, n, k] -> c [r, n] = a w^T; transposed: a [r, n] -> a w
//   grouped_weight_product  dy [r, n], x [r, k] -> dw [e, n, k] sink = dy^T x, zero or unchanged
//   for
//                           an expert without rows
void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                    const Sink& c);
void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                            const Sink& dw);
PHX_KERNEL(void, grouped_matmul,
           (const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
            Tensor& workspace, const Sink& c))
PHX_KERNEL(void, grouped_weight_product,
           (const Tensor& dy, const Tensor& x, const Tensor& offsets, Tensor& workspace,
            const Sink& dw))

// y = probs act(x): x [r, 2f] = [gate | up] if gated, else [r, f]; probs [r] in acc_dtype; y [r,
// f]. Only the first offsets[e] rows.
struct ExpertActivation {
  Activation kind = Activation::silu;
  bool gated = true;
};
PHX_KERNEL(void, activate_weighted,
           (const Tensor& x, const Tensor& probs, const Tensor& offsets,
            const ExpertActivation& activation, Tensor& y))
// dx like x, dprobs like probs; both overwritten.
PHX_KERNEL(void, activate_weighted_backward,
           (const Tensor& x, const Tensor& probs, const Tensor& offsets, const Tensor& dy,
            const ExpertActivation& activation, Tensor& dx, Tensor& dprobs))

// y = factors x, row by row: x, y [t, h]; factors [t] in acc_dtype. The backward overwrites.
PHX_KERNEL(void, scale_rows, (const Tensor& x, const Tensor& factors, Tensor& y))
PHX_KERNEL(void, scale_rows_backward,
           (const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx, Tensor& dfactors))

}  // namespace phx::kernels
