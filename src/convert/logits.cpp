#include "phalanx/convert/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "phalanx/base/distance.h"
#include "phalanx/base/error.h"
#include "phalanx/convert/loaded_model.h"
#include "phalanx/models/model_family.h"

namespace phx {

std::vector<double> logits_of(const TransformerConfig& config, const TensorSource& source,
                              std::span<const int64_t> tokens, DType dtype, Device device) {
  const auto length = int64_t(tokens.size());
  PHX_CHECK(length > 0, "a prompt has at least one token");
  PHX_CHECK(!config.has_position_table() || length <= config.max_position_embeddings,
            "the prompt has ", length, " tokens, but the model knows ",
            config.max_position_embeddings, " positions");
  const int64_t vocabulary = config.vocab_size.value_or(config.padded_vocab());
  for (const int64_t token : tokens)
    PHX_CHECK(token >= 0 && token < vocabulary, "token ", token,
              " of the prompt is outside of the vocabulary of ", vocabulary);
  const LoadedModel loaded(default_model()(config), source, dtype, device, length);
  GradMode off(device.runtime(), false);
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  const Tensor prompt = from_ints(ids, {length, 1}, DType::i64, device);
  return to_values(
      loaded.model->generator()->logits(prompt, nullptr, /*last_only=*/false));  // [s, v]
}

namespace {

double log_sum(std::span<const double> row) {  // ln sum exp
  const double most = std::ranges::max(row);
  double sum = 0;
  for (const double x : row) sum += std::exp(x - most);
  return most + std::log(sum);
}

// KL(softmax b || softmax a).
double divergence(std::span<const double> a, std::span<const double> b) {
  const double all_a = log_sum(a), all_b = log_sum(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_b = b[i] - all_b;
    sum += std::exp(log_b) * (log_b - (a[i] - all_a));
  }
  return std::max(sum, 0.0);  // rounding may bring it below
}

double apart_in_norm(std::span<const double> a, std::span<const double> b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return apart == 0 ? 0 : std::sqrt(apart / size);
}

}  // namespace

LogitsDifference compare_logits(std::span<const double> a, std::span<const double> b,
                                int64_t vocabulary) {
  PHX_CHECK(a.size() == b.size(), "logits of ", a.size() / size_t(vocabulary), " and ",
            b.size() / size_t(vocabulary), " positions cannot be compared");
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const auto worst = [](double& so_far, double here) {
    so_far = std::isfinite(here) ? std::max(so_far, here) : kInfinite;
  };
  LogitsDifference result;
  for (size_t row = 0; row < a.size(); row += size_t(vocabulary)) {
    const auto x = a.subspan(row, size_t(vocabulary)), y = b.subspan(row, size_t(vocabulary));
    for (size_t i = 0; i < x.size(); ++i) {
      const double apart = distance(x[i], y[i]);
      if (apart <= result.largest) continue;
      result.largest = apart;
      result.position = int64_t(row) / vocabulary;
      result.token = int64_t(i);
    }
    worst(result.relative, apart_in_norm(x, y));
    worst(result.divergence, divergence(x, y));
  }
  return result;
}

LogitsTolerance LogitsTolerance::of(int64_t length) {
  const double angle = 0x1p-23 * double(std::max<int64_t>(length, 128));
  const double relative = 10 * angle;
  return {.relative = relative, .divergence = 4.5 * relative * relative};
}

}  // namespace phx
