// The angles of rotary position embeddings: pair i of a head turns by position * inverse[i].
//
//   plain         inverse[i] = base^(-2i / rotary_dim)
//   interpolated  positions are divided by a factor
//   llama3        long wavelengths are divided by a factor, short ones kept, between them a ramp
//   yarn          (Peng et al. 2023) the same with a ramp over the pair's index, and cos and sin
//   are
//                 scaled by an attention factor. Fields and defaults follow the transformers
//                 library.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "phalanx/core/tensor.h"

namespace phx::kernels {

struct Llama3Scaling {
  double factor = 8;
  double low = 1, high = 4;
  int64_t original_length = 8192;
};

struct YarnScaling {
  double factor = 1;
  int64_t original_length = 4096;
  double beta_fast = 32, beta_slow = 1;  // turns over the original length: more are kept, fewer cut
  // cos and sin are multiplied by this. Unless given: 0.1 ln(factor) + 1, or the quotient of the
  // two magnitudes where both are not 0 (DeepSeek).
  std::optional<double> attention_factor = {};
  double mscale = 0, mscale_all_dim = 0;
  bool truncate = true;  // the ramp's ends are rounded to whole pairs
};

struct RopeConfig {
  int64_t head_dim = 0;
  double base = 10000;
  double percent = 1;        // of head_dim that turns
  double interpolation = 1;  // positions are divided by it
  std::optional<Llama3Scaling> llama3 = {};
  std::optional<YarnScaling> yarn = {};

  int64_t rotary_dim() const { return int64_t(double(head_dim) * percent); }
};

struct RopeFrequencies {
  std::vector<double> inverse;  // [rotary_dim / 2]
  double attention_factor = 1;
};
RopeFrequencies rope_frequencies(const RopeConfig& config);

// 0.1 mscale ln(factor) + 1 for factor > 1, else 1: also the softmax's share of it (MLA).
double yarn_magnitude(double factor, double mscale);

// [positions, 2, rotary_dim / 2]: cos, then sin, of positions 0 .., times the attention factor.
// Angles are computed in double; `dtype` is f32, or f64 for f64 models.
Tensor rope_table(const RopeConfig& config, int64_t positions, DType dtype, Device device);

}  // namespace phx::kernels
