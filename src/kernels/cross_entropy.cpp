#include "phalanx/kernels/cross_entropy.h"

namespace phx::kernels {

void cross_entropy_statistics(const Tensor& logits, const Tensor& labels,
                              const CrossEntropyOptions& options, Tensor& statistics) {
  PHX_DISPATCH(logits.device(), cross_entropy_statistics, logits, labels, options, statistics);
}

void cross_entropy_losses(const Tensor& statistics, const Tensor& labels,
                          const CrossEntropyOptions& options, Tensor& lse, Tensor& losses) {
  PHX_DISPATCH(statistics.device(), cross_entropy_losses, statistics, labels, options, lse, losses);
}

void cross_entropy_gradient(Tensor& logits, const Tensor& labels, const Tensor& lse,
                            const RowWeights& weights, const CrossEntropyOptions& options) {
  PHX_DISPATCH(logits.device(), cross_entropy_gradient, logits, labels, lse, weights, options);
}

void cross_entropy_with_gradient(Tensor& logits, const Tensor& labels, const RowWeights& weights,
                                 const CrossEntropyOptions& options, Tensor& losses) {
  PHX_DISPATCH(logits.device(), cross_entropy_with_gradient, logits, labels, weights, options,
               losses);
}

void masked_sum(const Tensor& losses, const Tensor& mask, Tensor& sum) {
  PHX_DISPATCH(losses.device(), masked_sum, losses, mask, sum);
}

void softcap(Tensor& logits, double cap) { PHX_DISPATCH(logits.device(), softcap, logits, cap); }

}  // namespace phx::kernels
