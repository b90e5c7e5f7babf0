#include "phalanx/kernels/expert_rows.h"

namespace phx::kernels::meta {

// How many rows there are is not known here; they are counted as if all room were used.

void sort_by_expert(const Tensor& indices, int64_t, Tensor&, Tensor& row_of, Tensor& choice_of,
                    Tensor& offsets) {
  indices.runtime().count(
      {.flops = 4 * indices.numel(),
       .bytes = 2 * indices.bytes() + row_of.bytes() + choice_of.bytes() + offsets.bytes()});
}

void gather_rows(const Tensor&, const Tensor& source, int64_t, Tensor& y) {
  y.runtime().count({.flops = 0, .bytes = source.bytes() + 2 * y.bytes()});
}

void sum_rows(const Tensor& x, const Tensor& row_of, const Sink& out) {
  x.runtime().count(
      {.flops = x.numel(),
       .bytes = x.bytes() + row_of.bytes() + out.tensor.bytes() * (out.beta != 0.f ? 2 : 1)});
}

void expert_counts(const Tensor& offsets, Tensor& counts) {
  offsets.runtime().count({.flops = counts.numel(), .bytes = offsets.bytes() + counts.bytes()});
}

void merge_by_expert(const Tensor& counts, int64_t, Tensor&, Tensor& source, Tensor& place,
                     Tensor& offsets) {
  counts.runtime().count(
      {.flops = 2 * source.numel(),
       .bytes = counts.bytes() + source.bytes() + place.bytes() + offsets.bytes()});
}

void grouped_matmul(const Tensor& a, const Tensor& w, const Tensor& offsets, bool, Tensor&,
                    const Sink& c) {
  a.runtime().count({.flops = 2 * a.numel() * c.tensor.dim(-1),
                     .bytes = a.bytes() + w.bytes() + offsets.bytes() +
                              c.tensor.bytes() * (c.beta != 0.f ? 2 : 1)});
}

void grouped_weight_product(const Tensor& dy, const Tensor& x, const Tensor& offsets, Tensor&,
                            const Sink& dw) {
  dy.runtime().count({.flops = 2 * dy.numel() * x.dim(-1),
                      .bytes = dy.bytes() + x.bytes() + offsets.bytes() +
                               dw.tensor.bytes() * (dw.beta != 0.f ? 2 : 1)});
}

void scale_rows(const Tensor& x, const Tensor& factors, Tensor& y) {
  x.runtime().count({.flops = x.numel(), .bytes = x.bytes() + factors.bytes() + y.bytes()});
}

void scale_rows_backward(const Tensor& x, const Tensor& factors, const Tensor& dy, Tensor& dx,
                         Tensor& dfactors) {
  x.runtime().count(
      {.flops = 3 * x.numel(),
       .bytes = x.bytes() + factors.bytes() + dy.bytes() + dx.bytes() + dfactors.bytes()});
}

void activate_weighted(const Tensor& x, const Tensor& probs, const Tensor&, const ExpertActivation&,
                       Tensor& y) {
  x.runtime().count({.flops = 12 * y.numel(), .bytes = x.bytes() + probs.bytes() + y.bytes()});
}

void activate_weighted_backward(const Tensor& x, const Tensor& probs, const Tensor&,
                                const Tensor& dy, const ExpertActivation&, Tensor& dx,
                                Tensor& dprobs) {
  x.runtime().count(
      {.flops = 28 * dy.numel(),
       .bytes = x.bytes() + 2 * probs.bytes() + dy.bytes() + dx.bytes() + dprobs.bytes()});
}

}  // namespace phx::kernels::meta
