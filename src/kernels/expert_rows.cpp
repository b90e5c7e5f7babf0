#include "phalanx/kernels/expert_rows.h"

#include "phalanx/kernels/matmul_blocks.h"
#include "phalanx/kernels/stable_sort.h"

namespace phx::kernels {

namespace {

// For the largest product that there can be: all rows belong to one expert.
Tensor scratch_for(const Tensor& a, const MatmulProblem& problem) {
  if (a.device().target() == DeviceKind::cuda || acc_dtype(a.dtype()) == a.dtype()) return {};
  return empty({matmul_scratch(problem)}, DType::f32, a.device(), Purpose::workspace);
}

}  // namespace

void sort_by_expert(const Tensor& indices, int64_t first, Tensor& row_of, Tensor& choice_of,
                    Tensor& offsets) {
  Tensor workspace;
  if (indices.device().target() == DeviceKind::cuda)
    workspace = empty({stable_sort_bytes(indices.numel(), 4)}, DType::u8, indices.device(),
                      Purpose::workspace);
  sort_by_expert(indices, first, workspace, row_of, choice_of, offsets);
}

void sort_by_expert(const Tensor& indices, int64_t first, Tensor& workspace, Tensor& row_of,
                    Tensor& choice_of, Tensor& offsets) {
  PHX_DISPATCH(indices.device(), sort_by_expert, indices, first, workspace, row_of, choice_of,
               offsets);
}

void gather_rows(const Tensor& x, const Tensor& source, int64_t per_row, Tensor& y) {
  PHX_CHECK(source.numel() == y.dim(0) && x.numel() / x.dim(0) == y.numel() / y.dim(0),
            "gather_rows: x is ", x.shape(), ", sources ", source.shape(), " and y ", y.shape());
  PHX_DISPATCH(x.device(), gather_rows, x, source, per_row, y);
}

void sum_rows(const Tensor& x, const Tensor& row_of, const Sink& out) {
  PHX_CHECK(row_of.dim(0) == out.tensor.dim(0) &&
                x.numel() / x.dim(0) == out.tensor.numel() / out.tensor.dim(0),
            "sum_rows: x is ", x.shape(), ", rows ", row_of.shape(), " and the sum ",
            out.tensor.shape());
  PHX_DISPATCH(x.device(), sum_rows, x, row_of, out);
}

void expert_counts(const Tensor& offsets, Tensor& counts) {
  PHX_DISPATCH(offsets.device(), expert_counts, offsets, counts);
}

void merge_by_expert(const Tensor& counts, int64_t first, Tensor& source, Tensor& place,
                     Tensor& offsets) {
  Tensor workspace;
  const int64_t cells = counts.dim(0) * (offsets.numel() - 1);
  if (counts.device().target() == DeviceKind::cuda)
    workspace = empty({2 * (cells + 1)}, DType::i32, counts.device(), Purpose::workspace);
  merge_by_expert(counts, first, workspace, source, place, offsets);
}

void merge_by_expert(const Tensor& counts, int64_t first, Tensor& workspace, Tensor& source,
                     Tensor& place, Tensor& offsets) {
  PHX_DISPATCH(counts.device(), merge_by_expert, counts, first, workspace, source, place, offsets);
}

void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                    const Sink& c) {
  PHX_CHECK(w.rank() == 3 && offsets.numel() == w.dim(0) + 1 &&
                a.dim(-1) == w.dim(transposed ? 1 : 2) &&
                c.tensor.dim(-1) == w.dim(transposed ? 2 : 1) && a.dim(0) == c.tensor.dim(0),
            "grouped_matmul: a is ", a.shape(), ", w ", w.shape(), transposed ? " transposed" : "",
            ", offsets ", offsets.shape(), " and c ", c.tensor.shape());
  Tensor workspace = scratch_for(a, {.m = a.dim(0), .n = c.tensor.dim(-1), .k = a.dim(-1)});
  grouped_matmul(a, w, offsets, transposed, workspace, c);
}

void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool transposed,
                    Tensor& workspace, const Sink& c) {
  PHX_DISPATCH(a.device(), grouped_matmul, a, w, offsets, transposed, workspace, c);
}

void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                            const Sink& dw) {
  PHX_CHECK(dw.tensor.rank() == 3 && offsets.numel() == dw.tensor.dim(0) + 1 &&
                dy.dim(-1) == dw.tensor.dim(1) && x.dim(-1) == dw.tensor.dim(2) &&
                dy.dim(0) == x.dim(0),
            "grouped_weight_product: dy is ", dy.shape(), ", x ", x.shape(), ", offsets ",
            offsets.shape(), " and dw ", dw.tensor.shape());
  Tensor workspace = scratch_for(dy, {.m = dy.dim(-1), .n = x.dim(-1), .k = dy.dim(0)});
  grouped_weight_product(dy, x, offsets, workspace, dw);
}

void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets,
                            Tensor& workspace, const Sink& dw) {
  PHX_DISPATCH(dy.device(), grouped_weight_product, dy, x, offsets, workspace, dw);
}

void scale_rows(const Tensor& x, const Tensor& factors, Tensor& y) {
  PHX_DISPATCH(x.device(), scale_rows, x, factors, y);
}

void scale_rows_backward(const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx,
                         Tensor& dfactors) {
  PHX_DISPATCH(x.device(), scale_rows_backward, x, factors, dy, dx, dfactors);
}

void activate_weighted(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                       const ExpertActivation& activation, Tensor& y) {
  PHX_DISPATCH(x.device(), activate_weighted, x, probs, offsets, activation, y);
}

void activate_weighted_backward(const Tensor& x, const Tensor& probs, const Tensor& offsets,
                                const Tensor& dy, const ExpertActivation& activation, Tensor& dx,
                                Tensor& dprobs) {
  PHX_DISPATCH(x.device(), activate_weighted_backward, x, probs, offsets, dy, activation, dx,
               dprobs);
}

}  // namespace phx::kernels
