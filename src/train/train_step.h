// One optimizer step: forward and backward of every micro-batch, gradient norm, update. Everything
// is enqueued; nothing waits for the device. What came out is collected a step later.
//
// The loss is the sum of token losses over the global batch / N. N is known before the forward, so
// the backward starts from 1/N (times the loss scale) and gradients are plain sums: no other factor
// exists.
#pragma once

#include <functional>
#include <optional>

#include "core/step_scalars.h"
#include "models/gpt/gpt_model.h"
#include "nn/parameter_store.h"
#include "optim/optimizer.h"
#include "train/batch_loader.h"

namespace phx {

struct StepSettings {
  int64_t iteration = 1;  // from 1: the step that random numbers are keyed by
  int64_t update = 1;     // from 1: Adam's count of updates, this one included
  double lr = 0;
  std::optional<double> decoupled_lr = {};  // of embedding and output layer; lr if unset
  double weight_decay = 0;
  double loss_scale = 1;
  bool sticky_skip = true;
};

class TrainStep {
 public:
  TrainStep(GptModel& model, ParameterStore& store, Optimizer& optimizer,
            const OptimizerConfig& config, uint64_t seed);

  // Enqueues the step on the given micro-batches, of which `tokens` count for the loss. Micro-batch
  // k begins with global sample first_sample + k * its width.
  void run(std::span<const Batch> micro_batches, int64_t tokens, int64_t first_sample,
           const StepSettings& settings);
  void run(const BatchLoader& loader, const StepSettings& settings);  // the loader's current batch

  // The oldest step not collected yet; waits for that one alone.
  StepResults collect() { return scalars_.collect(); }
  int pending() const { return scalars_.published(); }
  void forget() { scalars_.forget(); }  // the oldest step's results are not wanted (meta has none)
  StepScalars& scalars() { return scalars_; }

  // Mean token loss over `num_batches` global batches from `first_sample` on, without dropout;
  // nothing if `stop` said so in between.
  std::optional<double> evaluate(BatchLoader& batch, int64_t first_sample, int64_t num_batches,
                                 const std::function<bool()>& stop = {});

 private:
  GptModel& model_;
  ParameterStore& store_;
  Optimizer& optimizer_;
  OptimizerConfig config_;
  uint64_t seed_;
  StepScalars scalars_;
  Tensor grad_scale_;  // [1] loss_scale / N
  Tensor one_;         // [1] where the backward of a loss starts
};

}  // namespace phx
