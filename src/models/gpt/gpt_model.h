// The GPT family: embedding -> transformer layers -> norm -> LM head. GPT-2, Llama 2 and 3,
// Mistral, Qwen2 and 3 and Gemma 1 to 3 are settings of TransformerConfig. A GptModel is all of
// that, or the part of it that one pipeline chunk holds.
#pragma once

#include <memory>
#include <optional>

#include "nn/embedding.h"
#include "ops/lm_loss.h"
#include "transformer/block.h"

namespace phx {

// One micro-batch on the device. Activations are [s, b, h], so tokens come as [s, b] as well.
struct Batch {
  Tensor tokens;                // [s, b] i64
  Tensor labels;                // [s, b] i64; -100 is ignored
  Tensor loss_mask;             // [s, b] in acc_dtype, or undefined for all ones
  Tensor positions = {};        // [s, b] i32, or undefined for 0, 1, 2 ..
  PackedSequences packed = {};  // b is 1 then, and s the tokens of all samples; or undefined
};

// What a model is built with beside its config.
struct GptOptions {
  RecomputePolicy recompute = {};
  ModelRanks ranks = {};
  // The part of it: by default all layers, between embedding and head.
  int64_t first_layer = 0;
  std::optional<int64_t> num_layers = {};
  bool embedding = true, head = true;
};

class GptModel : public Module {
 public:
  explicit GptModel(const TransformerConfig& config, const GptOptions& options = {});

  // Makes the tables that depend on device and dtype. `length`: positions that will be asked for.
  void prepare(Device device, DType dtype, int64_t length, int64_t micro_batch);

  bool has_embedding() const { return options_.embedding; }
  bool has_head() const { return options_.head; }

  // From the tokens (with the embedding) or the chunk before: -> [s/tp or s, b, h]; with the head,
  // after the final norm.
  Tensor hidden(const Tensor& tokens, const ForwardContext& context);  // [s, b]
  Tensor layers(const Tensor& x, const ForwardContext& context);       // [s/tp or s, b, h]

  // Sum of the token losses of a micro-batch; its backward gives gradients of grad_scale times that
  // sum, grad_scale [1] being loss_scale / N (see ops/lm_loss.h).
  LmLoss loss(const Batch& batch, const Tensor& grad_scale, const ForwardContext& context);
  LmLoss head_loss(const Tensor& hidden, const Batch& batch, const Tensor& grad_scale);

  // One rank only: the logits of given rows, for sampling.
  Tensor logits(const Tensor& hidden);                      // [.., h] -> [t, v]
  KvCache make_cache(int64_t length, int64_t batch) const;  // for generation
  const TransformerConfig& config() const { return config_; }

 private:
  VocabTable& output() { return output_ ? *output_ : *embedding_; }
  LmLossOptions loss_options();
  Tensor embed(const Tensor& tokens, const ForwardContext& context);

  // Names: "embedding.word_embeddings", "embedding.position_embeddings".
  class EmbeddingGroup : public Module {
   public:
    using Module::add_child;
  };

  TransformerConfig config_;
  GptOptions options_;
  EmbeddingGroup embedding_group_;
  std::optional<VocabTable> embedding_;
  std::optional<Embedding> positions_;
  TransformerBlock decoder_;
  // An untied head's table, or the last stage's copy of a tied one: [v, h].
  std::optional<VocabTable> output_;
  std::optional<RopeTables> rope_;
  Tensor position_ids_;  // [length/tp, b] i64 with its own positions, learned positions only
  std::optional<Device> device_;
  DType dtype_ = DType::f32;
};

}  // namespace phx
