// What is trained. The trainer, the pipeline, checkpoints, verify and plan know this interface
// only; families of models stand in folders beside it and in the catalogue.
//
// A Model object is a whole model or the part of one that a pipeline chunk holds: some consecutive
// layers, perhaps the model's begin (which reads the batch), perhaps its end (which has the loss).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phalanx/base/own_options.h"
#include "phalanx/models/batch.h"
#include "phalanx/models/loss.h"
#include "phalanx/nn/module.h"
#include "phalanx/parallel/pipeline/stage.h"
#include "phalanx/transformer/forward_context.h"
#include "phalanx/transformer/layer_context.h"
#include "phalanx/transformer/recompute_policy.h"

namespace phx {

struct ModelPart {
  int64_t first_layer = 0;
  std::optional<int64_t> num_layers = {};  // none: all
  bool begin = true, end = true;
  // Layers of multi-token prediction: all of them or none.
  enum class Ahead : uint8_t { here, earlier, later } ahead = Ahead::here;
};

// What a model is built with beside its config.
struct ModelOptions {
  RecomputePolicy recompute = {};
  ModelRanks ranks = {};
  ModelPart part = {};
  Loss loss = cross_entropy();  // at the end of the model
  OwnOptions own = {};          // of its family
};

// A micro-batch, before there is one: s is the length of the sequence on all ranks together.
struct MicroBatchShape {
  int64_t s = 0, b = 1;
  DType dtype = DType::f32;  // of activations
};

struct ModelOutput {
  StageMessage message = {};  // for the next chunk; empty where the model ends
  // [1] where it ends: the sum of the losses of what counts. How much counts is the batch's to say,
  // before the forward: the trainer divides the sum over all ranks and micro-batches by that count.
  Tensor loss_sum = {};
};

// A model that continues a sequence of tokens, one rank.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual KvCache make_cache(int64_t length, int64_t batch) const = 0;
  // Logits behind every one of `tokens`, which follow those in the cache; null: they begin the
  // sequence. The cache holds them afterwards. [s, 1] -> [s or 1, v], `last_only`: of the last
  // token.
  virtual Tensor logits(const Tensor& tokens, KvCache* cache, bool last_only) = 0;
};

class Model : public Module {
 public:
  // Makes the tables that depend on device and dtype. `length`: positions that will be asked for.
  virtual void prepare(Device device, DType dtype, int64_t length, int64_t micro_batch) = 0;

  virtual const ModelPart& part() const = 0;
  // Names of the parts of its layers, for --recompute-modules (RecomputePolicy::parts).
  virtual std::vector<std::string> part_names() const { return {}; }
  // Tokens that it predicts beside the next one (--mtp-num-layers), where they are predicted here.
  virtual int64_t tokens_ahead() const { return 0; }
  virtual MessageSpec input(const MicroBatchShape& shape) const = 0;   // empty at the begin
  virtual MessageSpec output(const MicroBatchShape& shape) const = 0;  // empty at the end

  // At the end the backward from loss_sum gives gradients of grad_scale times it, grad_scale [1]
  // being loss_scale / N (see ops/lm_loss.h); undefined: no gradients are wanted.
  virtual ModelOutput forward(const StageMessage& input, const Batch& batch,
                              const Tensor& grad_scale, const ForwardContext& context) = 0;

  // Whether its begin, its layers and its end are right when a rank has some rows of every sequence
  // only (ModelRanks::context): messages and batches have those rows.
  virtual bool takes_context_parallel() const { return false; }

  virtual Generator* generator() { return nullptr; }  // null: it cannot continue a text
};

}  // namespace phx
