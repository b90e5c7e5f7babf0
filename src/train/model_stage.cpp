#include "phalanx/train/model_stage.h"

#include "phalanx/kernels/elementwise.h"
#include "phalanx/kernels/sums.h"

namespace phx {

namespace {

Tensor of_micro_batch(const Tensor& values, int micro_batch) {
  return values.defined() && values.dim(0) > 1 ? values.rows(micro_batch, 1) : values;
}

// Messages are read by name; what a segment takes and gives is in the order of the spec.
std::vector<Tensor> tensors_of(const MessageSpec& spec, const StageMessage& message) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& one : spec) tensors.push_back(message.at(one.name));
  return tensors;
}

StageMessage named(const MessageSpec& spec, std::span<const Tensor> tensors) {
  PHX_ASSERT(spec.size() == tensors.size(), "a message of ", spec.size(), " tensors has ",
             tensors.size());
  StageMessage message;
  for (size_t i = 0; i < spec.size(); ++i) message.add(spec[i].name, tensors[i]);
  return message;
}

}  // namespace

ModelStage::ModelStage(std::vector<Model*> chunks, const MicroBatchShape& shape, Device device)
    : chunks_(std::move(chunks)), shape_(shape) {
  one_ = empty({1}, acc_dtype(shape.dtype), device, Purpose::runtime);
  kernels::fill(one_, 1.0);
}

ModelOutput ModelStage::run(Model& model, int micro_batch, const StageMessage& input) {
  ForwardContext context = work_.context;
  context.samples = work_.samples(micro_batch);
  if (work_.mean_scale.defined()) context.mean_scale = work_.mean_scale.rows(micro_batch, 1);
  ModelOutput output = model.forward(input, work_.batch(micro_batch),
                                     of_micro_batch(work_.grad_scale, micro_batch), context);
  if (!model.part().end) return output;
  Tensor sum = of_micro_batch(work_.loss_sum, micro_batch);
  if (sum.defined()) kernels::sum(output.loss_sum, {sum, 1.f});
  return output;
}

StageMessage ModelStage::forward(int micro_batch, int chunk, const StageMessage& input) {
  Model& model = this->model(chunk);
  if (!work_.grad_scale.defined()) return run(model, micro_batch, input).message;
  if (work_.before_forward) work_.before_forward();
  const MessageSpec in = this->input(micro_batch, chunk), out = output(micro_batch, chunk);
  auto segment =
      std::make_unique<Segment>(tensors_of(in, input), [&](std::span<const Tensor> tensors) {
        const ModelOutput output = run(model, micro_batch, named(in, tensors));
        if (model.part().end) return std::vector<Tensor>{output.loss_sum};
        return tensors_of(out, output.message);
      });
  const std::vector<Tensor> outputs = segment->take_outputs();
  segments_[{micro_batch, chunk}] = std::move(segment);
  if (work_.after_forward) work_.after_forward(chunk);
  return model.part().end ? StageMessage() : named(out, outputs);
}

StageMessage ModelStage::backward(int micro_batch, int chunk, const StageMessage& doutput,
                                  bool defer_weights) {
  const Key key{micro_batch, chunk};
  const auto found = segments_.find(key);
  PHX_ASSERT(found != segments_.end(), "micro-batch ", micro_batch, " of chunk ", chunk,
             " has no forward");
  const std::unique_ptr<Segment> segment = std::move(found->second);
  segments_.erase(found);
  const std::vector<Tensor> start = model(chunk).part().end
                                        ? std::vector<Tensor>{one_}
                                        : tensors_of(output(micro_batch, chunk), doutput);
  const auto gradients =
      segment->backward(start, {.defer = defer_weights ? &deferred_[key] : nullptr});
  return named(input(micro_batch, chunk), gradients);
}

void ModelStage::weight_backward(int micro_batch, int chunk) {
  const auto found = deferred_.find({micro_batch, chunk});
  PHX_ASSERT(found != deferred_.end(), "micro-batch ", micro_batch, " of chunk ", chunk,
             " put nothing off");
  DeferredWork work = std::move(found->second);
  deferred_.erase(found);
  for (auto& piece : work) {
    piece();
    piece = nullptr;  // frees what it held
  }
}

}  // namespace phx
