#include "phalanx/kernels/cross_entropy.h"

namespace phx::kernels::meta {

namespace {

int64_t bytes_of(const RowWeights& weights) {
  return weights.mask.defined() ? weights.mask.bytes() : 0;
}

// An exponential and a few additions for each logit; a tanh more under a softcap.
int64_t flops_a_pass(const Tensor& logits, const CrossEntropyOptions& options) {
  return (options.logit_softcap != 0 ? 6 : 4) * logits.numel();
}

}  // namespace

void cross_entropy_statistics(const Tensor& logits, const Tensor& labels,
                              const CrossEntropyOptions& options, Tensor& statistics) {
  logits.runtime().count({.flops = flops_a_pass(logits, options),
                          .bytes = logits.bytes() + labels.bytes() + statistics.bytes()});
}

void cross_entropy_losses(const Tensor& statistics, const Tensor& labels,
                          const CrossEntropyOptions&, Tensor& lse, Tensor& losses) {
  statistics.runtime().count(
      {.flops = 3 * labels.numel(),
       .bytes = statistics.bytes() + labels.bytes() + lse.bytes() + losses.bytes()});
}

void cross_entropy_gradient(Tensor& logits, const Tensor& labels, const Tensor& lse,
                            const RowWeights& weights, const CrossEntropyOptions& options) {
  logits.runtime().count(
      {.flops = flops_a_pass(logits, options),
       .bytes = 2 * logits.bytes() + labels.bytes() + lse.bytes() + bytes_of(weights)});
}

void cross_entropy_with_gradient(Tensor& logits, const Tensor& labels, const RowWeights& weights,
                                 const CrossEntropyOptions& options, Tensor& losses) {
  logits.runtime().count(
      {.flops = 2 * flops_a_pass(logits, options),
       .bytes = 2 * logits.bytes() + labels.bytes() + bytes_of(weights) + losses.bytes()});
}

void masked_sum(const Tensor& losses, const Tensor& mask, Tensor& sum) {
  losses.runtime().count(
      {.flops = 2 * losses.numel(),
       .bytes = losses.bytes() + (mask.defined() ? mask.bytes() : 0) + sum.bytes()});
}

void softcap(Tensor& logits, double) {
  logits.runtime().count({.flops = 4 * logits.numel(), .bytes = 2 * logits.bytes()});
}

}  // namespace phx::kernels::meta
