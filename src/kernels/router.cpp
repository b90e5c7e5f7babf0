#include "phalanx/kernels/router.h"

#include "phalanx/kernels/stable_sort.h"

namespace phx::kernels {

void route(const Tensor& logits, const Tensor& bias, const RouterOptions& options, Tensor& indices,
           Tensor& probs) {
  const int64_t e = logits.dim(1);
  PHX_CHECK(e <= kMostExperts && options.topk <= kMostTopk && options.topk <= e,
            "a router chooses up to ", kMostTopk, " of up to ", kMostExperts, " experts, not ",
            options.topk, " of ", e);
  PHX_DISPATCH(logits.device(), route, logits, bias, options, indices, probs);
}

void route_given(const Tensor& logits, const Tensor& indices, const RouterOptions& options,
                 Tensor& probs) {
  PHX_DISPATCH(logits.device(), route_given, logits, indices, options, probs);
}

void route_balance(const Tensor& logits, const RouterOptions& options, int64_t samples,
                   Tensor& sums) {
  PHX_CHECK(logits.dim(0) % samples == 0 && sums.numel() == balance_size(samples, logits.dim(1)),
            "route_balance: ", logits.shape(), " logits of ", samples, " samples and ",
            sums.numel(), " sums");
  Tensor workspace;
  if (logits.device().target() == DeviceKind::cuda) {
    const int64_t parts = samples * balance_chunks(logits.dim(0), samples);
    workspace = empty({parts * balance_size(1, logits.dim(1))}, logits.dtype(), logits.device(),
                      Purpose::workspace);
  }
  route_balance(logits, options, samples, workspace, sums);
}

void route_balance(const Tensor& logits, const RouterOptions& options, int64_t samples,
                   Tensor& workspace, Tensor& sums) {
  PHX_DISPATCH(logits.device(), route_balance, logits, options, samples, workspace, sums);
}

void balance_slopes(const Tensor& sums, int64_t experts, const BalanceFactors& factors,
                    const Tensor& scale, const Tensor& loads, Tensor& slopes, const Tensor& tally) {
  PHX_DISPATCH(sums.device(), balance_slopes, sums, experts, factors, scale, loads, slopes, tally);
}

void count_choices(const Tensor& indices, int64_t experts, const Tensor& tally) {
  PHX_DISPATCH(indices.device(), count_choices, indices, experts, tally);
}

void end_router_step(const RouterTally& tally, const Tensor& skip, double rate, Tensor& bias,
                     Tensor& loads) {
  PHX_DISPATCH(skip.device(), end_router_step, tally, skip, rate, bias, loads);
}

void route_backward(const Tensor& logits, const Tensor& indices, const Tensor& dprobs,
                    const Tensor& slopes, const RouterOptions& options, const Sink& dlogits) {
  PHX_DISPATCH(logits.device(), route_backward, logits, indices, dprobs, slopes, options, dlogits);
}

void route_evenly(int64_t first_token, int64_t experts, Tensor& indices) {
  PHX_DISPATCH(indices.device(), route_evenly, first_token, experts, indices);
}

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor& keep) {
  Tensor workspace;
  if (indices.device().target() == DeviceKind::cuda)
    workspace = empty({stable_sort_bytes(indices.numel(), by_weight ? 8 : 4)}, DType::u8,
                      indices.device(), Purpose::workspace);
  keep_within_capacity(indices, probs, experts, capacity, by_weight, workspace, keep);
}

void keep_within_capacity(const Tensor& indices, const Tensor& probs, int64_t experts,
                          int64_t capacity, bool by_weight, Tensor& workspace, Tensor& keep) {
  PHX_DISPATCH(indices.device(), keep_within_capacity, indices, probs, experts, capacity, by_weight,
               workspace, keep);
}

void drop_choices(const Tensor& keep, Tensor& indices, Tensor& probs) {
  PHX_DISPATCH(indices.device(), drop_choices, keep, indices, probs);
}

}  // namespace phx::kernels
