// The GPT family: embedding -> transformer layers -> norm -> LM head. GPT-2, Llama 2 and 3,
// Mistral, Qwen2 and 3 and Gemma 1 to 3 are settings of TransformerConfig.
#pragma once

#include <memory>
#include <optional>

#include "nn/embedding.h"
#include "ops/lm_loss.h"
#include "transformer/block.h"

namespace phx {

// One micro-batch on the device. Activations are [s, b, h], so tokens come as [s, b] as well.
struct Batch {
  Tensor tokens;     // [s, b] i64
  Tensor labels;     // [s, b] i64; -100 is ignored
  Tensor loss_mask;  // [s, b] in acc_dtype, or undefined for all ones
};

class GptModel : public Module {
 public:
  explicit GptModel(const TransformerConfig& config, const RecomputePolicy& recompute = {});

  // Makes the tables that depend on device and dtype. `length`: positions that will be asked for.
  void prepare(Device device, DType dtype, int64_t length, int64_t micro_batch);

  // Sum of the token losses of a micro-batch; its backward gives gradients of grad_scale times that
  // sum, grad_scale [1] being loss_scale / N (see ops/lm_loss.h).
  LmLoss loss(const Batch& batch, const Tensor& grad_scale, const ForwardContext& context);

  // Hidden states [s, b, h] after the final norm, and the logits of given rows.
  Tensor hidden(const Tensor& tokens, const ForwardContext& context);  // [s, b] -> [s, b, h]
  Tensor logits(const Tensor& hidden);                                 // [.., h] -> [t, v]

  KvCache make_cache(int64_t length, int64_t batch) const;  // for generation
  const TransformerConfig& config() const { return config_; }

 private:
  Parameter& output_weight() { return output_ ? output_->weight() : embedding_.weight(); }
  LmLossOptions loss_options() const;

  // Names: "embedding.word_embeddings", "embedding.position_embeddings".
  class EmbeddingGroup : public Module {
   public:
    using Module::add_child;
  };

  TransformerConfig config_;
  EmbeddingGroup embedding_group_;
  Embedding embedding_;
  std::optional<Embedding> positions_;
  TransformerBlock decoder_;
  std::optional<Embedding> output_;  // an untied head is a table too: [v, h]
  std::optional<RopeTables> rope_;
  Tensor position_ids_;  // [length, b] i64, learned positions only
  std::optional<Device> device_;
  DType dtype_ = DType::f32;
};

}  // namespace phx
