// Sampling text from a model, token by token, with a cache of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "phalanx/models/model.h"

namespace phx {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the likeliest token
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;        // the smallest set of likeliest tokens with this probability
  uint64_t seed = 1234;
};

// Continues `prompt` by up to max_new_tokens, or until `stop` says so of a new token. The same seed
// gives the same text. The model must be prepared for prompt and new tokens together.
std::vector<int32_t> generate(Generator& model, std::span<const int32_t> prompt,
                              int64_t max_new_tokens, const SamplingOptions& options,
                              const std::function<bool(int32_t token)>& stop = {});

// One token from logits; `uniform` in (0, 1) decides.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double uniform);

}  // namespace phx
