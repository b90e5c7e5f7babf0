// The GPT family: embedding -> transformer layers -> norm -> LM head. GPT-2, Llama 2 and 3,
// Mistral, Qwen2 and 3 and Gemma 1 to 3 are settings of TransformerConfig.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "phalanx/models/gpt/token_ahead.h"
#include "phalanx/models/model.h"
#include "phalanx/nn/embedding.h"
#include "phalanx/ops/lm_loss.h"
#include "phalanx/parallel/tensor/layers.h"
#include "phalanx/transformer/block.h"

namespace phx {

class GptModel : public Model, private Generator {
 public:
  // `parts`: what a layer is made of, by its index.
  explicit GptModel(const TransformerConfig& config, const ModelOptions& options = {},
                    const LayerParts& parts = decoder_layer);

  void prepare(Device device, DType dtype, int64_t length, int64_t micro_batch) override;
  const ModelPart& part() const override { return options_.part; }
  std::vector<std::string> part_names() const override { return decoder_.part_names(); }
  int64_t tokens_ahead() const override { return int64_t(ahead_.size()); }
  // "hidden": [s/tp or s, b, h], and behind the layers of multi-token prediction "ahead.1" .. too.
  MessageSpec input(const MicroBatchShape& shape) const override;
  MessageSpec output(const MicroBatchShape& shape) const override;
  ModelOutput forward(const StageMessage& input, const Batch& batch, const Tensor& grad_scale,
                      const ForwardContext& context) override;
  bool takes_context_parallel() const override;
  Generator* generator() override { return this; }

  // From the tokens (with the embedding) or the chunk before: -> [s/tp or s, b, h]; with the head,
  // after the final norm.
  Tensor hidden(const Tensor& tokens, const ForwardContext& context);  // [s, b]
  Tensor layers(const Tensor& x, const ForwardContext& context);       // [s/tp or s, b, h]

  // Of the next token; ahead > 0: of one so many tokens further.
  Tensor head_loss(const Tensor& hidden, const Batch& batch, const Tensor& grad_scale,
                   int64_t ahead = 0);
  // One rank only.
  Tensor logits_of(const Tensor& hidden);  // [.., h] -> [t, v]

 private:
  KvCache make_cache(int64_t length, int64_t batch) const override;
  Tensor logits(const Tensor& tokens, KvCache* cache, bool last_only) override;
  MessageSpec message(const MicroBatchShape& shape, bool with_ahead) const;
  void prepare_own_positions(int64_t length, int64_t micro_batch, Device device);
  // Of tokens.k where the batch has none, if they do not count up on this rank; or undefined.
  Tensor own_positions(const Batch& batch, int64_t ahead) const;
  // What the layers of multi-token prediction make of the decoder's output: [s/tp, b, h] each.
  std::vector<Tensor> predict_ahead(Tensor hidden, const Batch& batch,
                                    const ForwardContext& context);
  Tensor with_losses_ahead(const Tensor& loss, std::span<const Tensor> ahead, const Batch& batch,
                           const Tensor& grad_scale, const ForwardContext& context);
  VocabTable& output() { return output_ ? *output_ : *embedding_; }
  LmLossOptions loss_options();
  // `ahead`: the tokens are those of so many positions further.
  Tensor embed(const Tensor& tokens, const Tensor& positions, const ForwardContext& context,
               int64_t ahead = 0);

  // Names: "embedding.word_embeddings", "embedding.position_embeddings", "mtp.layers.0".
  class Group : public Module {
   public:
    using Module::add_child;
  };

  TransformerConfig config_;
  ModelOptions options_;
  Group embedding_group_;
  std::optional<VocabTable> embedding_;
  std::optional<Embedding> positions_;
  TransformerBlock decoder_;
  Group ahead_group_;  // "mtp"
  std::vector<std::unique_ptr<TokenAhead>> ahead_;
  // An untied head's table, or the last stage's copy of a tied one: [v, h].
  std::optional<VocabTable> output_;
  std::optional<RopeTables> rope_;
  // [length/tp, b] i64 with its own positions, of one context-parallel rank with learned positions
  // only; at [k] of tokens.k.
  std::vector<Tensor> position_ids_;
  // The same of this rank's rows for context parallelism: i32 [length/cp, b].
  std::vector<Tensor> own_positions_;
  std::optional<Device> device_;
  DType dtype_ = DType::f32;
};

}  // namespace phx
