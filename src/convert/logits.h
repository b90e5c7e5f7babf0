// What a model says to a prompt, straight from a source of its weights.
#pragma once

#include <span>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/runtime.h"
#include "transformer/transformer_config.h"

namespace phx {

// [s, v], row-major. Weights are converted to `dtype`, and tensors of the optimizer left alone.
std::vector<double> logits_of(const TransformerConfig& config, const TensorSource& source,
                              std::span<const int64_t> tokens, DType dtype, Device device);

// max |a - b|, and where.
struct LogitsDifference {
  double largest = 0;
  int64_t position = 0, token = 0;
};
LogitsDifference compare_logits(std::span<const double> a, std::span<const double> b,
                                int64_t vocabulary);

}  // namespace phx
