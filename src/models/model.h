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
  // Where the layers of multi-token prediction are: here, or in an earlier or a later part.
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

// The shape of a micro-batch. s is the length of the sequence on all ranks together.
struct MicroBatchShape {
  int64_t s = 0, b = 1;
  DType dtype = DType::f32;  // of activations
};

struct ModelOutput {
  StageMessage message = {};  // for the next chunk; empty where the model ends
  // [1] where the model ends: the sum of the losses of all tokens that count. The batch says how
  // many count, before the forward. The trainer divides the sum over all ranks by that number.
  Tensor loss_sum = {};
};

// A model that continues a sequence of tokens, one rank.
class Generator {
 public:
  virtual ~Generator() = default;
  virtual KvCache make_cache(int64_t length, int64_t batch) const = 0;
  // The logits after each of `tokens`, which follow the tokens in the cache and are added to it.
  // Without a cache they begin the sequence. [s, 1] -> [s, v]; `last_only`: [1, v], after the last
  // token.
  virtual Tensor logits(const Tensor& tokens, KvCache* cache, bool last_only) = 0;
};

class Model : public Module {
 public:
  // Makes the tables that depend on device and dtype. `length`: how many positions there will be.
  virtual void prepare(Device device, DType dtype, int64_t length, int64_t micro_batch) = 0;

  virtual const ModelPart& part() const = 0;
  // The names of its layers' parts, for --recompute-modules (RecomputePolicy::parts).
  virtual std::vector<std::string> part_names() const { return {}; }
  // How many tokens this part predicts beside the next one (--mtp-num-layers).
  virtual int64_t tokens_ahead() const { return 0; }
  virtual MessageSpec input(const MicroBatchShape& shape) const = 0;   // empty at the begin
  virtual MessageSpec output(const MicroBatchShape& shape) const = 0;  // empty at the end

  // Where the model ends, the backward from loss_sum gives the gradients of grad_scale x loss_sum.
  // grad_scale [1] is loss_scale / N (ops/lm_loss.h); undefined: no gradients are wanted.
  virtual ModelOutput forward(const StageMessage& input, const Batch& batch,
                              const Tensor& grad_scale, const ForwardContext& context) = 0;

  // Whether embedding, layers and loss are right when a rank has only some rows of each sequence
  // (ModelRanks::context). Messages and batches then have those rows.
  virtual bool takes_context_parallel() const { return false; }

  virtual Generator* generator() { return nullptr; }  // null: it cannot continue a text
};

}  // namespace phx
