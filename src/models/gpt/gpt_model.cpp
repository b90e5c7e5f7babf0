#include "models/gpt/gpt_model.h"

#include <cmath>
#include <numeric>

#include "core/philox.h"
#include "ops/dropout.h"

namespace phx {

GptModel::GptModel(const TransformerConfig& config, const RecomputePolicy& recompute)
    : config_(config),
      embedding_(config.vocab_size.value_or(config.padded_vocab()), config.hidden_size,
                 Init::normal(config.embedding_std()), config.padded_vocab()),
      decoder_(config_, recompute) {
  embedding_group_.add_child("word_embeddings", embedding_);
  if (config.has_position_table()) {
    positions_.emplace(config.max_position_embeddings, config.hidden_size,
                       Init::normal(config.embedding_std()));
    embedding_group_.add_child("position_embeddings", *positions_);
  }
  add_child("embedding", embedding_group_);
  add_child("decoder", decoder_);
  if (config.untie_embeddings_and_output_weights) {
    output_.emplace(config.vocab_size.value_or(config.padded_vocab()), config.hidden_size,
                    Init::normal(config.init_method_std), config.padded_vocab());
    add_child("output_layer", *output_);
  }
}

void GptModel::prepare(Device device, DType dtype, int64_t length, int64_t micro_batch) {
  device_ = device;
  dtype_ = dtype;
  PurposeScope scope(device.runtime(), Purpose::runtime);
  rope_.emplace(config_, length, acc_dtype(dtype), device);
  if (!positions_) return;
  PHX_CHECK(length <= config_.max_position_embeddings, "positions up to ", length,
            " are asked for, but --max-position-embeddings is ", config_.max_position_embeddings);
  std::vector<int64_t> ids(length * micro_batch);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = int64_t(i) / micro_batch;
  position_ids_ = from_ints(ids, {length, micro_batch}, DType::i64, device);
}

Tensor GptModel::hidden(const Tensor& tokens, const ForwardContext& context) {  // [s, b]
  PHX_CHECK(rope_.has_value(), "GptModel::prepare was not called");
  Tensor x = embedding_.forward(tokens, config_.embedding_scale.value_or(1.0));  // [s, b, h]
  if (positions_) {
    PHX_CHECK(tokens.dim(1) <= position_ids_.dim(1), "prepared for ", position_ids_.dim(1),
              " samples a micro-batch, not ", tokens.dim(1));
    const Tensor ids = position_ids_.rows(context.first_position, tokens.dim(0));  // [s, b]
    x = bias_dropout_add(x, positions_->forward(ids), Tensor(), 0.0, {});          // [s, b, h]
  }
  if (context.training && config_.hidden_dropout > 0) {
    x = dropout(x, config_.hidden_dropout,
                {.seed = context.seed,
                 .site = site_of("embedding.dropout"),
                 .step = context.step,
                 .first_sample = context.first_sample,
                 .first_position = context.first_position});
  }
  return decoder_.forward(x, *rope_, context);
}

LmLossOptions GptModel::loss_options() const {
  return {.vocab = config_.vocab_size.value_or(0),
          .logit_softcap = config_.final_logit_softcapping.value_or(0.0)};
}

LmLoss GptModel::loss(const Batch& batch, const Tensor& grad_scale, const ForwardContext& context) {
  const Tensor x = hidden(batch.tokens, context);  // [s, b, h]
  const int64_t t = batch.tokens.numel();
  const Tensor mask = batch.loss_mask.defined() ? batch.loss_mask.reshape({t}) : Tensor();
  return lm_loss(x.reshape({t, config_.hidden_size}), output_weight().acquire(),
                 batch.labels.reshape({t}), mask, grad_scale, loss_options());
}

Tensor GptModel::logits(const Tensor& hidden) {  // [.., h] -> [t, v]
  GradMode off(hidden.runtime(), false);
  return lm_logits(hidden.reshape({kOpenDim, config_.hidden_size}), output_weight().acquire(),
                   loss_options());
}

KvCache GptModel::make_cache(int64_t length, int64_t batch) const {
  KvCache cache;
  const Shape shape{length, batch, config_.query_groups() * config_.head_dim()};
  for (int64_t i = 0; i < config_.num_layers; ++i)
    cache.layers.push_back({empty(shape, dtype_, *device_), empty(shape, dtype_, *device_)});
  return cache;
}

}  // namespace phx
