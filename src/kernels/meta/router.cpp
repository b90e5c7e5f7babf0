#include "phalanx/kernels/router.h"

namespace phx::kernels::meta {

// Logits are few: t e of them against t h activations. What counts is that they are read.

void route(const Tensor& logits, const Tensor&, const RouterOptions& options, Tensor& indices,
           Tensor& probs) {
  logits.runtime().count({.flops = logits.numel() * (10 + options.topk),
                          .bytes = logits.bytes() + indices.bytes() + probs.bytes()});
}

void route_given(const Tensor& logits, const Tensor& indices, const RouterOptions&, Tensor& probs) {
  logits.runtime().count(
      {.flops = logits.numel() * 10, .bytes = logits.bytes() + indices.bytes() + probs.bytes()});
}

void route_balance(const Tensor& logits, const RouterOptions& options, int64_t, Tensor&,
                   Tensor& sums) {
  logits.runtime().count(
      {.flops = logits.numel() * (12 + options.topk), .bytes = logits.bytes() + sums.bytes()});
}

void balance_slopes(const Tensor& sums, int64_t, const BalanceFactors&, const Tensor&,
                    const Tensor&, Tensor& slopes, const Tensor&) {
  sums.runtime().count({.flops = 8 * sums.numel(), .bytes = sums.bytes() + slopes.bytes()});
}

void count_choices(const Tensor& indices, int64_t, const Tensor& tally) {
  indices.runtime().count({.flops = indices.numel(), .bytes = indices.bytes() + 2 * tally.bytes()});
}

void end_router_step(const RouterTally& tally, const Tensor&, double, Tensor&, Tensor&) {
  tally.row.runtime().count({.flops = 2 * tally.row.numel(), .bytes = 2 * tally.row.bytes()});
}

void route_backward(const Tensor& logits, const Tensor& indices, const Tensor& dprobs,
                    const Tensor&, const RouterOptions&, const Sink& dlogits) {
  logits.runtime().count(
      {.flops = 20 * logits.numel(),
       .bytes = logits.bytes() + indices.bytes() + dprobs.bytes() + dlogits.tensor.bytes()});
}

void route_evenly(int64_t, int64_t, Tensor& indices) {
  indices.runtime().count({.flops = indices.numel(), .bytes = indices.bytes()});
}

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t, int64_t, bool,
                          Tensor&, Tensor& keep) {
  indices.runtime().count({.flops = 30 * indices.numel(),
                           .bytes = 4 * (indices.bytes() + probs.bytes()) + keep.bytes()});
}

void drop_choices(const Tensor& keep, Tensor& indices, Tensor& probs) {
  keep.runtime().count(
      {.flops = keep.numel(), .bytes = keep.bytes() + indices.bytes() + probs.bytes()});
}

}  // namespace phx::kernels::meta
