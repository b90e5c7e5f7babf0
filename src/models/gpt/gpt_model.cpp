#include "phalanx/models/gpt/gpt_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/sums.h"
#include "phalanx/ops/dropout.h"
#include "phalanx/ops/side_losses.h"
#include "phalanx/transformer/normed_linear.h"
#include "phalanx/transformer/self_attention.h"

namespace phx {

namespace {

using Ahead = ModelPart::Ahead;

bool predicts_ahead_here(const TransformerConfig& config, const ModelPart& part) {
  return config.mtp_num_layers > 0 && part.ahead == Ahead::here;
}

// Layers of multi-token prediction take what the norm behind the decoder made.
bool has_final_norm(const TransformerConfig& config, const ModelPart& part) {
  return config.mtp_num_layers > 0 ? part.ahead == Ahead::here : part.end;
}

std::string of_ahead(const char* name, int64_t ahead) {
  return ahead == 0 ? name : str_cat(name, ".", ahead);
}

}  // namespace

GptModel::GptModel(const TransformerConfig& config, const ModelOptions& options,
                   const LayerParts& parts)
    : config_(config),
      options_(options),
      decoder_(config_, options.recompute,
               {.first = options.part.first_layer,
                .count = options.part.num_layers.value_or(config.num_layers),
                .final_norm = has_final_norm(config, options.part)},
               options.ranks, parts) {
  const TensorParallel& tp = options.ranks.tp;
  const int64_t padded = config.padded_vocab(tp.size());
  const int64_t vocab = config.vocab_size.value_or(padded), h = config.hidden_size;
  const Init embedding_init = Init::normal(config.embedding_std());
  const bool tied = !config.untie_embeddings_and_output_weights;
  const ModelPart& part = options.part;
  const bool ahead = predicts_ahead_here(config, part);
  // Whether this part's embedding is also on another stage: for multi-token prediction, or for the
  // head.
  const bool ahead_apart = config.mtp_num_layers > 0 && !(part.begin && ahead);
  const bool shared = ahead_apart || (tied && !(part.begin && part.end));
  const ParameterAxes words = shared ? on_several_stages(cut_over_tp()) : cut_over_tp();
  const ParameterAxes in_sequence = axes_in_sequence(tp);
  if (part.begin || ahead) {
    embedding_.emplace(vocab, h, embedding_init, padded, tp, words);
    embedding_group_.add_child("word_embeddings", *embedding_);
    if (config.has_position_table()) {
      positions_.emplace(config.max_position_embeddings, h, embedding_init,
                         ahead_apart ? on_several_stages(in_sequence) : in_sequence);
      embedding_group_.add_child("position_embeddings", *positions_);
    }
  }
  add_child("embedding", embedding_group_);
  add_child("decoder", decoder_);
  if (ahead) {
    for (int64_t k = 0; k < config.mtp_num_layers; ++k) {
      ahead_.push_back(
          std::make_unique<TokenAhead>(config_, k, options.recompute, options.ranks, parts));
      ahead_group_.add_child(str_cat("layers.", k), *ahead_.back());
    }
    add_child("mtp", ahead_group_);
  }
  if (!part.end) return;
  if (!tied) {
    output_.emplace(vocab, h, Init::normal(config.init_method_std), padded, tp);
    add_child("output_layer", *output_);
  } else if (!embedding_) {
    output_.emplace(vocab, h, embedding_init, padded, tp, words);
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
  PHX_CHECK(!positions_ || length <= config_.max_position_embeddings, "positions up to ", length,
            " are asked for, but --max-position-embeddings is ", config_.max_position_embeddings);
  if (options_.ranks.context.size() > 1) return prepare_own_positions(length, micro_batch, device);
  if (!positions_) return;
  position_ids_.clear();
  const int64_t rows = tp.sequence_rows(length), first = tp.first_sequence_row(length);
  std::vector<int64_t> ids(rows * micro_batch);
  for (int64_t ahead = 0; ahead <= int64_t(ahead_.size()); ++ahead) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t position = first + int64_t(i) / micro_batch + ahead;
      ids[i] = position < length ? position : 0;
    }
    position_ids_.push_back(from_ints(ids, {rows, micro_batch}, DType::i64, device));
  }
}

// Everything that asks where a token stands reads these; attention knows the chunks itself.
void GptModel::prepare_own_positions(int64_t length, int64_t micro_batch, Device device) {
  const SequenceCut cut = options_.ranks.context.cut();
  std::vector<int64_t> ids(size_t(cut.rows(length) * micro_batch));
  own_positions_.clear();
  for (int64_t ahead = 0; ahead <= int64_t(ahead_.size()); ++ahead) {
    for (const RowSpan& span : cut.spans(length))
      for (int64_t i = 0; i < span.count; ++i) {
        const int64_t position = span.global + i + ahead;
        std::fill_n(ids.begin() + (span.local + i) * micro_batch, micro_batch,
                    position < length ? position : 0);
      }
    own_positions_.push_back(from_ints(ids, {cut.rows(length), micro_batch}, DType::i32, device));
  }
}

bool GptModel::takes_context_parallel() const {
  return decoder_.takes_context_parallel() && std::ranges::all_of(ahead_, [](const auto& layer) {
           return layer->takes_context_parallel();
         });
}

Tensor GptModel::own_positions(const Batch& batch, int64_t ahead) const {
  const Tensor given = batch.tensors.get(of_ahead("positions", ahead));
  if (given.defined() || own_positions_.empty()) return given;
  PHX_CHECK(!batch.packed.cu_seqlens.defined(),
            "packed sequences that are cut over ranks need the positions of their tokens");
  return own_positions_.at(size_t(ahead));
}

Tensor GptModel::embed(const Tensor& tokens, const Tensor& positions, const ForwardContext& context,
                       int64_t ahead) {  // [s, b], [s, b]
  const TensorParallel& tp = options_.ranks.tp;
  Tensor x = embedding_->forward(tokens, config_.embedding_scale.value_or(1.0));  // [s/tp, b, h]
  if (positions_ && positions.defined()) {
    const int64_t first = tp.first_sequence_row(positions.dim(0));
    const Tensor ids = positions.rows(first, x.dim(0));                    // [s/tp, b]
    x = bias_dropout_add(x, positions_->forward(ids), Tensor(), 0.0, {});  // [s/tp, b, h]
  } else if (positions_) {
    const Tensor& all = position_ids_.at(size_t(ahead));
    PHX_CHECK(tokens.dim(1) <= all.dim(1), "prepared for ", all.dim(1),
              " samples a micro-batch, not ", tokens.dim(1));
    const Tensor ids = all.rows(context.first_position, x.dim(0));         // [s/tp, b]
    x = bias_dropout_add(x, positions_->forward(ids), Tensor(), 0.0, {});  // [s/tp, b, h]
  }
  if (context.training && config_.hidden_dropout > 0)
    x = dropout(x, config_.hidden_dropout,
                random_site(of_ahead("embedding.dropout", ahead), context, tp, x.dim(0)));
  return x;
}

Tensor GptModel::hidden(const Tensor& tokens, const ForwardContext& context) {  // [s, b]
  PHX_CHECK(rope_.has_value(), "GptModel::prepare was not called");
  return layers(embed(tokens, context.positions, context), context);
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

MessageSpec GptModel::message(const MicroBatchShape& shape, bool with_ahead) const {
  const int64_t rows = options_.ranks.tp.sequence_rows(options_.ranks.context.cut().rows(shape.s));
  const Shape hidden{rows, shape.b, config_.hidden_size};
  MessageSpec spec{{"hidden", hidden, shape.dtype}};
  for (int64_t k = 1; with_ahead && k <= config_.mtp_num_layers; ++k)
    spec.push_back({of_ahead("ahead", k), hidden, shape.dtype});
  return spec;
}

MessageSpec GptModel::input(const MicroBatchShape& shape) const {
  if (options_.part.begin) return {};
  return message(shape, options_.part.ahead == Ahead::earlier);
}

MessageSpec GptModel::output(const MicroBatchShape& shape) const {
  if (options_.part.end) return {};
  return message(shape, options_.part.ahead != Ahead::later);
}

ModelOutput GptModel::forward(const StageMessage& input, const Batch& batch,
                              const Tensor& grad_scale, const ForwardContext& context) {
  ForwardContext of_batch = context;
  of_batch.positions = own_positions(batch, 0);
  of_batch.packed = batch.packed;
  of_batch.cut = options_.ranks.context.cut();
  const Tensor x = options_.part.begin ? hidden(batch.tensors.at("tokens"), of_batch)
                                       : layers(input.at("hidden"), of_batch);  // [s/tp, b, h]
  std::vector<Tensor> ahead;                                                    // [s/tp, b, h] each
  if (!ahead_.empty()) {
    ahead = predict_ahead(x, batch, of_batch);
  } else if (options_.part.ahead == Ahead::earlier) {
    for (int64_t k = 1; k <= config_.mtp_num_layers; ++k)
      ahead.push_back(input.at(of_ahead("ahead", k)));
  }
  if (options_.part.end) {
    const Tensor loss = head_loss(x, batch, grad_scale);
    return {.loss_sum = with_losses_ahead(loss, ahead, batch, grad_scale, context)};
  }
  ModelOutput output{.message = {{"hidden", x}}};
  for (size_t k = 0; k < ahead.size(); ++k)
    output.message.add(of_ahead("ahead", int64_t(k) + 1), ahead[k]);
  return output;
}

std::vector<Tensor> GptModel::predict_ahead(Tensor hidden, const Batch& batch,
                                            const ForwardContext& context) {
  // An evaluation has no use for them, as in Megatron; a message keeps its shape.
  if (!context.training) return std::vector<Tensor>(ahead_.size(), hidden);
  std::vector<Tensor> results;
  for (int64_t k = 1; k <= int64_t(ahead_.size()); ++k) {
    const Tensor embedded =
        embed(batch.tensors.at(of_ahead("tokens", k)), own_positions(batch, k), context, k);
    hidden = ahead_[size_t(k) - 1]->forward(hidden, embedded, *rope_, context);  // [s/tp, b, h]
    results.push_back(hidden);
  }
  return results;
}

// Each loss is weighed as Megatron does it: factor / K times the mean over what counts of it, in
// the unit of the main loss, whose sum is multiplied by grad_scale.
Tensor GptModel::with_losses_ahead(const Tensor& loss, std::span<const Tensor> ahead,
                                   const Batch& batch, const Tensor& grad_scale,
                                   const ForwardContext& context) {
  if (ahead.empty() || !context.training) return loss;
  std::vector<Tensor> losses;
  for (size_t k = 1; k <= ahead.size(); ++k) {
    const auto counted = double(batch.counted.at(k));
    Tensor scale;  // [1]
    if (grad_scale.defined()) {
      scale = empty({1}, grad_scale.dtype(), grad_scale.device());
      kernels::scale(grad_scale,
                     config_.mtp_loss_scaling_factor / double(ahead.size()) *
                         double(batch.counted.at(0)) / std::max(counted, 1.0),
                     {scale});
    }
    losses.push_back(head_loss(ahead[k - 1], batch, scale, int64_t(k)));
    if (context.ahead_tally.defined())
      kernels::sum(losses.back(), {context.ahead_tally.rows(int64_t(k) - 1, 1), 1.f});
  }
  return with_side_losses(loss, losses);
}

Tensor GptModel::head_loss(const Tensor& hidden, const Batch& batch, const Tensor& grad_scale,
                           int64_t ahead) {                  // [s/tp, b, h] -> [1]
  const Tensor x = enter_region(hidden, options_.ranks.tp);  // [s, b, h]
  const Tensor& labels = batch.tensors.at(of_ahead("labels", ahead));
  const int64_t t = labels.numel();
  // Labels ahead are -100 where the mask is 0.
  const Tensor loss_mask = ahead == 0 ? batch.tensors.get("loss_mask") : Tensor();
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
