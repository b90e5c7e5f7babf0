#include "phalanx/models/gpt/gpt_model.h"

#include <cmath>
#include <numeric>

#include "phalanx/ops/dropout.h"
#include "phalanx/transformer/normed_linear.h"
#include "phalanx/transformer/self_attention.h"

namespace phx {

GptModel::GptModel(const TransformerConfig& config, const ModelOptions& options,
                   const LayerParts& parts)
    : config_(config),
      options_(options),
      decoder_(config_, options.recompute,
               {.first = options.part.first_layer,
                .count = options.part.num_layers.value_or(config.num_layers),
                .final_norm = options.part.end},
               options.ranks, parts) {
  const TensorParallel& tp = options.ranks.tp;
  const int64_t padded = config.padded_vocab(tp.size());
  const int64_t vocab = config.vocab_size.value_or(padded), h = config.hidden_size;
  const Init embedding_init = Init::normal(config.embedding_std());
  const bool tied = !config.untie_embeddings_and_output_weights;
  ParameterAxes shared{.cut = {Axis::tp}};  // by the first and the last stage, when it is tied
  shared.partial.add(Axis::pp);
  if (options.part.begin) {
    embedding_.emplace(vocab, h, embedding_init, padded, tp,
                       tied && !options.part.end ? shared : cut_over_tp());
    embedding_group_.add_child("word_embeddings", *embedding_);
    if (config.has_position_table()) {
      positions_.emplace(config.max_position_embeddings, h, embedding_init, axes_in_sequence(tp));
      embedding_group_.add_child("position_embeddings", *positions_);
    }
  }
  add_child("embedding", embedding_group_);
  add_child("decoder", decoder_);
  if (!options.part.end) return;
  if (!tied) {
    output_.emplace(vocab, h, Init::normal(config.init_method_std), padded, tp);
    add_child("output_layer", *output_);
  } else if (!options.part.begin) {
    output_.emplace(vocab, h, embedding_init, padded, tp, shared);
    embedding_group_.add_child("word_embeddings", *output_);
  }
}

void GptModel::prepare(Device device, DType dtype, int64_t length, int64_t micro_batch) {
  device_ = device;
  dtype_ = dtype;
  PurposeScope scope(device.runtime(), Purpose::runtime);
  const TensorParallel& tp = options_.ranks.tp;
  const HeadCut heads(config_, tp);
  rope_.emplace(config_, heads.n + heads.g, length, acc_dtype(dtype), device);
  if (!positions_) return;
  PHX_CHECK(length <= config_.max_position_embeddings, "positions up to ", length,
            " are asked for, but --max-position-embeddings is ", config_.max_position_embeddings);
  const int64_t rows = tp.sequence_rows(length), first = tp.first_sequence_row(length);
  std::vector<int64_t> ids(rows * micro_batch);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = first + int64_t(i) / micro_batch;
  position_ids_ = from_ints(ids, {rows, micro_batch}, DType::i64, device);
}

Tensor GptModel::embed(const Tensor& tokens, const ForwardContext& context) {  // [s, b]
  const TensorParallel& tp = options_.ranks.tp;
  Tensor x = embedding_->forward(tokens, config_.embedding_scale.value_or(1.0));  // [s/tp, b, h]
  if (positions_ && context.positions.defined()) {
    const int64_t first = tp.first_sequence_row(context.positions.dim(0));
    const Tensor ids = context.positions.rows(first, x.dim(0));            // [s/tp, b]
    x = bias_dropout_add(x, positions_->forward(ids), Tensor(), 0.0, {});  // [s/tp, b, h]
  } else if (positions_) {
    PHX_CHECK(tokens.dim(1) <= position_ids_.dim(1), "prepared for ", position_ids_.dim(1),
              " samples a micro-batch, not ", tokens.dim(1));
    const Tensor ids = position_ids_.rows(context.first_position, x.dim(0));  // [s/tp, b]
    x = bias_dropout_add(x, positions_->forward(ids), Tensor(), 0.0, {});     // [s/tp, b, h]
  }
  if (context.training && config_.hidden_dropout > 0)
    x = dropout(x, config_.hidden_dropout, random_site("embedding.dropout", context, tp, x.dim(0)));
  return x;
}

Tensor GptModel::hidden(const Tensor& tokens, const ForwardContext& context) {  // [s, b]
  PHX_CHECK(rope_.has_value(), "GptModel::prepare was not called");
  return layers(embed(tokens, context), context);
}

Tensor GptModel::layers(const Tensor& x, const ForwardContext& context) {  // [s/tp, b, h]
  return decoder_.forward(x, *rope_, context);
}

LmLossOptions GptModel::loss_options() {
  return {.vocab = config_.vocab_size.value_or(0),
          .logit_softcap = config_.final_logit_softcapping.value_or(0.0),
          .first_class = output().first_row(),
          .class_ranks = options_.ranks.tp.size() > 1 ? options_.ranks.tp.group : nullptr};
}

MessageSpec GptModel::message(const MicroBatchShape& shape) const {
  const int64_t rows = options_.ranks.tp.sequence_rows(shape.s);
  return {{"hidden", {rows, shape.b, config_.hidden_size}, shape.dtype}};
}

MessageSpec GptModel::input(const MicroBatchShape& shape) const {
  return options_.part.begin ? MessageSpec{} : message(shape);
}

MessageSpec GptModel::output(const MicroBatchShape& shape) const {
  return options_.part.end ? MessageSpec{} : message(shape);
}

ModelOutput GptModel::forward(const StageMessage& input, const Batch& batch,
                              const Tensor& grad_scale, const ForwardContext& context) {
  ForwardContext of_batch = context;
  of_batch.positions = batch.tensors.get("positions");
  of_batch.packed = batch.packed;
  const Tensor x = options_.part.begin ? hidden(batch.tensors.at("tokens"), of_batch)
                                       : layers(input.at("hidden"), of_batch);  // [s/tp, b, h]
  if (!options_.part.end) return {.message = {{"hidden", x}}};
  return {.loss_sum = head_loss(x, batch, grad_scale)};
}

Tensor GptModel::head_loss(const Tensor& hidden, const Batch& batch,
                           const Tensor& grad_scale) {       // [s/tp, b, h] -> [1]
  const Tensor x = enter_region(hidden, options_.ranks.tp);  // [s, b, h]
  const Tensor& labels = batch.tensors.at("labels");
  const int64_t t = labels.numel();
  const Tensor loss_mask = batch.tensors.get("loss_mask");
  const Tensor mask = loss_mask.defined() ? loss_mask.reshape({t}) : Tensor();
  return options_.loss.sum({.hidden = x.reshape({t, config_.hidden_size}),
                            .weight = output().weight().acquire(),
                            .labels = labels.reshape({t}),
                            .loss_mask = mask,
                            .grad_scale = grad_scale,
                            .head = loss_options()},
                           options_.loss.options);
}

Tensor GptModel::logits_of(const Tensor& hidden) {  // [.., h] -> [t, v]
  GradMode off(hidden.runtime(), false);
  return lm_logits(hidden.reshape({kOpenDim, config_.hidden_size}), output().weight().acquire(),
                   loss_options());
}

Tensor GptModel::logits(const Tensor& tokens, KvCache* cache, bool last_only) {  // [s, 1]
  GradMode off(tokens.runtime(), false);
  const int64_t s = tokens.dim(0);
  const Tensor x = hidden(tokens, {.first_position = cache == nullptr ? 0 : cache->length,
                                   .training = false,
                                   .cache = cache});  // [s, 1, h]
  if (cache != nullptr) cache->length += s;
  return logits_of(last_only ? x.rows(s - 1, 1) : x);
}

KvCache GptModel::make_cache(int64_t length, int64_t batch) const {
  KvCache cache;
  const int64_t g = config_.query_groups();
  const Shape keys{length, batch, g * config_.head_dim()};
  const Shape values{length, batch, g * config_.value_dim()};
  for (int64_t i = 0; i < config_.num_layers; ++i)
    cache.layers.push_back({empty(keys, dtype_, *device_), empty(values, dtype_, *device_)});
  return cache;
}

}  // namespace phx
