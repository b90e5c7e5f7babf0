#include "convert/logits.h"

#include "base/distance.h"
#include "base/error.h"
#include "checkpoint/loader.h"
#include "models/gpt/gpt_model.h"

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
  GptModel model(config);
  ParameterStore store(model, device, {.dtype = dtype, .gradients = false, .initialize = false});
  const FlatState weights{.prefix = "", .flat = store.weights()};
  load_parameters(source, store, std::span(&weights, 1),
                  {.ignored = {"optimizer."}, .convert = true});
  model.prepare(device, dtype, length, /*micro_batch=*/1);
  GradMode off(device.runtime(), false);
  const std::vector<int64_t> ids(tokens.begin(), tokens.end());
  const Tensor hidden =
      model.hidden(from_ints(ids, {length, 1}, DType::i64, device), {.training = false});
  return to_values(model.logits(hidden));  // [s, v]
}

LogitsDifference compare_logits(std::span<const double> a, std::span<const double> b,
                                int64_t vocabulary) {
  PHX_CHECK(a.size() == b.size(), "logits of ", a.size() / size_t(vocabulary), " and ",
            b.size() / size_t(vocabulary), " positions cannot be compared");
  LogitsDifference result;
  for (size_t i = 0; i < a.size(); ++i) {
    const double apart = distance(a[i], b[i]);
    if (apart > result.largest) result = {apart, int64_t(i) / vocabulary, int64_t(i) % vocabulary};
  }
  return result;
}

}  // namespace phx
