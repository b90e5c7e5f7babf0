#include "train/gpt_stage.h"

#include "kernels/elementwise.h"
#include "kernels/sums.h"

namespace phx {

namespace {

Tensor of_micro_batch(const Tensor& values, int micro_batch) {
  return values.defined() && values.dim(0) > 1 ? values.rows(micro_batch, 1) : values;
}

}  // namespace

GptStage::GptStage(std::vector<GptModel*> chunks, const MessageSpec& message, Device device)
    : chunks_(std::move(chunks)), message_(message) {
  one_ = empty({1}, acc_dtype(message.dtype), device, Purpose::runtime);
  kernels::fill(one_, 1.0);
}

Tensor GptStage::run(GptModel& model, int micro_batch, const Tensor& input) {
  const Batch batch = work_.batch(micro_batch);
  ForwardContext context = work_.context;
  context.samples = work_.samples(micro_batch);
  context.positions = batch.positions;
  context.packed = batch.packed;
  const Tensor x = model.has_embedding() ? model.hidden(batch.tokens, context)
                                         : model.layers(input, context);  // [s/tp or s, b, h]
  if (!model.has_head()) return x;
  const LmLoss loss = model.head_loss(x, batch, of_micro_batch(work_.grad_scale, micro_batch));
  Tensor sum = of_micro_batch(work_.loss_sum, micro_batch);
  if (sum.defined()) kernels::sum(loss.loss_sum, {sum, 1.f});
  return loss.loss_sum;
}

Tensor GptStage::forward(int micro_batch, int chunk, const Tensor& input) {
  GptModel& model = *chunks_.at(size_t(chunk));
  if (!work_.grad_scale.defined()) {
    const Tensor y = run(model, micro_batch, input);
    return model.has_head() ? Tensor() : y;
  }
  std::vector<Tensor> inputs;
  if (!model.has_embedding()) inputs.push_back(input);
  auto segment = std::make_unique<Segment>(inputs, [&](std::span<const Tensor> in) {
    return std::vector<Tensor>{run(model, micro_batch, in.empty() ? Tensor() : in[0])};
  });
  const Tensor output = segment->take_outputs().at(0);
  segments_[{micro_batch, chunk}] = std::move(segment);
  return model.has_head() ? Tensor() : output;
}

Tensor GptStage::backward(int micro_batch, int chunk, const Tensor& doutput, bool defer_weights) {
  const Key key{micro_batch, chunk};
  const auto found = segments_.find(key);
  PHX_ASSERT(found != segments_.end(), "micro-batch ", micro_batch, " of chunk ", chunk,
             " has no forward");
  const std::unique_ptr<Segment> segment = std::move(found->second);
  segments_.erase(found);
  const Tensor start = chunks_[size_t(chunk)]->has_head() ? one_ : doutput;
  const auto gradients =
      segment->backward(std::span(&start, 1), {.defer = defer_weights ? &deferred_[key] : nullptr});
  return gradients.empty() ? Tensor() : gradients[0];
}

void GptStage::weight_backward(int micro_batch, int chunk) {
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
