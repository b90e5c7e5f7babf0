#include "phalanx/kernels/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace phx::kernels {

namespace {

constexpr double kTurn = 2 * std::numbers::pi;

void scale_llama3(const Llama3Scaling& scaling, std::vector<double>& inverse) {
  for (double& frequency : inverse) {
    const double turns = double(scaling.original_length) * frequency / kTurn;
    const double kept = std::clamp((turns - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0);
    frequency *= kept + (1 - kept) / scaling.factor;
  }
}

void scale_yarn(const YarnScaling& scaling, double base, std::vector<double>& inverse) {
  const double rotary_dim = 2 * double(inverse.size());
  // The pair (as a real number) that makes so many turns over the original length.
  auto pair_with = [&](double turns) {
    return rotary_dim * std::log(double(scaling.original_length) / (turns * kTurn)) /
           (2 * std::log(base));
  };
  double low = pair_with(scaling.beta_fast), high = pair_with(scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1);
  if (low == high) high += 0.001;  // a step instead of a ramp
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((double(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] *= ramp / scaling.factor + (1 - ramp);
  }
}

double attention_factor(const YarnScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0)
    return yarn_magnitude(scaling.factor, scaling.mscale) /
           yarn_magnitude(scaling.factor, scaling.mscale_all_dim);
  return yarn_magnitude(scaling.factor, 1);
}

}  // namespace

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

RopeFrequencies rope_frequencies(const RopeConfig& config) {
  const int64_t rotary_dim = config.rotary_dim();
  PHX_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= config.head_dim,
            "rope: a head of ", config.head_dim, " with percent ", config.percent, " turns ",
            rotary_dim, " channels, but they come in pairs within the head");
  PHX_CHECK(!(config.llama3 && config.yarn), "rope: either Llama-3 scaling or YaRN, not both");
  RopeFrequencies result;
  result.inverse.resize(size_t(rotary_dim / 2));
  for (size_t i = 0; i < result.inverse.size(); ++i)
    result.inverse[i] =
        std::pow(config.base, -2.0 * double(i) / double(rotary_dim)) / config.interpolation;
  if (config.llama3) scale_llama3(*config.llama3, result.inverse);
  if (config.yarn) {
    scale_yarn(*config.yarn, config.base, result.inverse);
    result.attention_factor = attention_factor(*config.yarn);
  }
  return result;
}

Tensor rope_table(const RopeConfig& config, int64_t positions, DType dtype, Device device) {
  PHX_CHECK(dtype == DType::f32 || dtype == DType::f64, "rope: a table of ", dtype,
            " is too coarse for angles; use f32 (f64 for f64 models)");
  const RopeFrequencies frequencies = rope_frequencies(config);
  const int64_t pairs = int64_t(frequencies.inverse.size());
  std::vector<double> values(size_t(positions * 2 * pairs));
  for (int64_t position = 0; position < positions; ++position) {
    double* cosines = values.data() + position * 2 * pairs;
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = double(position) * frequencies.inverse[size_t(i)];
      cosines[i] = frequencies.attention_factor * std::cos(angle);
      cosines[pairs + i] = frequencies.attention_factor * std::sin(angle);
    }
  }
  return from_values(values, {positions, 2, pairs}, dtype, device);
}

}  // namespace phx::kernels
