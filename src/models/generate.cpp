#include "phalanx/models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "phalanx/core/philox.h"

namespace phx {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     double uniform) {
  PHX_CHECK(!logits.empty(), "sample_token: there are no logits");
  for (float logit : logits)
    PHX_CHECK(!std::isnan(logit),
              "sample_token: a logit is not a number; the model's weights are broken");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties go to the lower id, so that the order is one.
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && size_t(options.top_k) < order.size())
    order.resize(size_t(options.top_k));
  std::vector<double> weights(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    weights[i] = std::exp((double(logits[order[i]]) - logits[order[0]]) / options.temperature);
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = order.size();
  double mass = all;
  if (options.top_p < 1.0) {
    mass = 0;
    for (kept = 0; kept < order.size() && (kept == 0 || mass < options.top_p * all); ++kept)
      mass += weights[kept];
  }
  double left = uniform * mass;
  for (size_t i = 0; i < kept; ++i) {
    left -= weights[i];
    if (left <= 0) return order[i];
  }
  return order[kept - 1];
}

std::vector<int32_t> generate(Generator& model, std::span<const int32_t> prompt,
                              int64_t max_new_tokens, const SamplingOptions& options,
                              const std::function<bool(int32_t token)>& stop) {
  PHX_CHECK(!prompt.empty(),
            "generate: the prompt is empty; a model needs at least one token to go on from");
  const int64_t length = int64_t(prompt.size()) + max_new_tokens;
  KvCache cache = model.make_cache(length, /*batch=*/1);
  const Device device = cache.layers.at(0).keys.device();
  GradMode off(device.runtime(), false);

  std::vector<int32_t> generated;
  std::vector<int64_t> next(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    const int64_t s = int64_t(next.size());
    const Tensor tokens = from_ints(next, {s, 1}, DType::i64, device);
    const std::vector<double> wide =
        to_values(model.logits(tokens, &cache, /*last_only=*/true));  // [1, v]
    const std::vector<float> logits(wide.begin(), wide.end());
    const uint32_t bits =
        philox4x32(philox_key(options.seed, site_of("generate"), 0), uint32_t(i), 0, 0, 0).x[0];
    const int32_t token = sample_token(logits, options, uniform_from(bits));
    generated.push_back(token);
    if (stop && stop(token)) break;
    next = {token};
  }
  return generated;
}

}  // namespace phx
