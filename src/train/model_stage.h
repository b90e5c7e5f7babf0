// The part of a model that one rank holds, as a pipeline schedule drives it: forward, backward
// and weight gradients of (micro-batch, chunk), each micro-batch's graph kept in between.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "phalanx/core/segment.h"
#include "phalanx/models/model.h"
#include "phalanx/parallel/pipeline/stage.h"

namespace phx {

// What one run of a schedule works on.
struct StageWork {
  std::function<Batch(int micro_batch)> batch;
  std::function<SamplePlace(int micro_batch)> samples;
  ForwardContext context;  // but for the samples
  // [1], or one a micro-batch: loss_scale / N; undefined: forward only
  Tensor grad_scale;
  // One a micro-batch, with what a mean over it enters the gradients; undefined: no model asks.
  Tensor mean_scale = {};
  // f64 [1], or one a micro-batch: the losses are added to it; undefined: another rank does that
  Tensor loss_sum;
  // Around the forward of a micro-batch that is trained on.
  std::function<void()> before_forward = {};
  std::function<void(int chunk)> after_forward = {};
};

class ModelStage : public Stage {
 public:
  ModelStage(std::vector<Model*> chunks, const MicroBatchShape& shape, Device device);

  void begin(StageWork work) { work_ = std::move(work); }
  void end_step(const StepEnd& step) {
    for (Model* chunk : chunks_) chunk->end_step(step);
  }

  Runtime& runtime() override { return one_.runtime(); }
  MessageSpec input(int, int chunk) const override { return model(chunk).input(shape_); }
  MessageSpec output(int, int chunk) const override { return model(chunk).output(shape_); }
  StageMessage forward(int micro_batch, int chunk, const StageMessage& input) override;
  StageMessage backward(int micro_batch, int chunk, const StageMessage& doutput,
                        bool defer_weights) override;
  void weight_backward(int micro_batch, int chunk) override;

 private:
  using Key = std::pair<int, int>;  // micro-batch, chunk
  Model& model(int chunk) const { return *chunks_.at(size_t(chunk)); }
  ModelOutput run(Model& model, int micro_batch, const StageMessage& input);

  std::vector<Model*> chunks_;
  MicroBatchShape shape_;
  Tensor one_;  // [1] where the backward of a loss starts
  StageWork work_;
  std::map<Key, std::unique_ptr<Segment>> segments_;
  std::map<Key, DeferredWork> deferred_;
};

}  // namespace phx
