// What a model says to a prompt, straight from a source of its weights.
#pragma once

#include <span>
#include <vector>

#include "phalanx/checkpoint/tensor_source.h"
#include "phalanx/core/runtime.h"
#include "phalanx/transformer/transformer_config.h"

namespace phx {

// [s, v], row-major. Weights are converted to `dtype`, and tensors of the optimizer left alone.
std::vector<double> logits_of(const TransformerConfig& config, const TensorSource& source,
                              std::span<const int64_t> tokens, DType dtype, Device device);

// How far logits `a` are from those of a reference, `b`: infinite where one of them is not finite.
struct LogitsDifference {
  double largest = 0;  // max |a - b|, and where
  int64_t position = 0, token = 0;
  double relative = 0;    // |a - b| / |b| of the worst position, norms over the vocabulary
  double divergence = 0;  // KL(softmax b || softmax a) of the worst position, in nats
};
LogitsDifference compare_logits(std::span<const double> a, std::span<const double> b,
                                int64_t vocabulary);

// What two right implementations in fp32 may differ by after a prompt of `length` tokens.
//
// RoPE decides it. Angles are position x frequency in fp32, each rounded: an error of up to
// r = length x 2^-23 rad, which layers make larger. A relative error of 10 r is allowed; below 128
// tokens, where all other rounding counts as much, that of 128. Logits that are e apart are e^2 / 2
// apart in KL at most; of logits of size 3 that is 4.5 (10 r)^2. docs/convert.md has measurements
// of right and of wrong models.
struct LogitsTolerance {
  double relative, divergence;
  static LogitsTolerance of(int64_t length);
  bool allows(const LogitsDifference& difference) const {
    return difference.relative <= relative && difference.divergence <= divergence;
  }
};

}  // namespace phx
