// The part of a GPT model that one rank holds, as a pipeline schedule drives it: forward, backward
// and weight gradients of (micro-batch, chunk), each micro-batch's graph kept in between.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/segment.h"
#include "models/gpt/gpt_model.h"
#include "parallel/pipeline/stage.h"

namespace phx {

// What one run of a schedule works on.
struct StageWork {
  std::function<Batch(int micro_batch)> batch;
  std::function<SamplePlace(int micro_batch)> samples;
  ForwardContext context;  // but for the samples
  // [1], or one a micro-batch: loss_scale / N; undefined: forward only
  Tensor grad_scale;
  // f64 [1], or one a micro-batch: the losses are added to it; undefined: another rank does that
  Tensor loss_sum;
};

class GptStage : public Stage {
 public:
  // `message`: [s/tp or s, b, h] between the stages.
  GptStage(std::vector<GptModel*> chunks, const MessageSpec& message, Device device);

  void begin(StageWork work) { work_ = std::move(work); }

  Runtime& runtime() override { return one_.runtime(); }
  MessageSpec message(int) const override { return message_; }
  Tensor forward(int micro_batch, int chunk, const Tensor& input) override;
  Tensor backward(int micro_batch, int chunk, const Tensor& doutput, bool defer_weights) override;
  void weight_backward(int micro_batch, int chunk) override;

 private:
  using Key = std::pair<int, int>;  // micro-batch, chunk
  Tensor run(GptModel& model, int micro_batch, const Tensor& input);

  std::vector<GptModel*> chunks_;
  MessageSpec message_;
  Tensor one_;  // [1] where the backward of a loss starts
  StageWork work_;
  std::map<Key, std::unique_ptr<Segment>> segments_;
  std::map<Key, DeferredWork> deferred_;
};

}  // namespace phx
