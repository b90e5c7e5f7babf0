#include "phalanx/core/step_scalars.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace phx {

namespace {

Tensor make_block(Device device) {
  Tensor block = empty({kNumSlots}, DType::f64, device, Purpose::runtime);
  set_zero(block);
  return block;
}

}  // namespace

StepValues step_values(int64_t step, double beta1, double beta2, double tokens) {
  return {.step = double(step),
          // 1 - beta^t without the cancellation of beta near 1 and t small
          .bias_correction1 = -std::expm1(double(step) * std::log(beta1)),
          .bias_correction2 = -std::expm1(double(step) * std::log(beta2)),
          .tokens = tokens,
          .inverse_tokens = 1.0 / std::max(tokens, 1.0)};
}

StepScalars::StepScalars(Device device)
    : tensor_(make_block(device)), copies_{make_block(device), make_block(device)} {}

void StepScalars::begin_step(const StepValues& values) {
  switch (tensor_.device().kind()) {
    case DeviceKind::cpu:
      std::memcpy(tensor_.data<double>(), &values, sizeof(values));
      return;
    case DeviceKind::meta:
      return;
    case DeviceKind::cuda:
      break;
  }
#ifdef PHX_HAVE_CUDA
  cuda::write_step_values(tensor_, values);
#endif
}

void StepScalars::invert_tokens() {
  switch (tensor_.device().kind()) {
    case DeviceKind::cpu: {
      double* slots = tensor_.data<double>();
      const double inverse = 1.0 / std::max(slots[index_of(Slot::tokens)], 1.0);
      slots[index_of(Slot::inverse_tokens)] = inverse;
      slots[index_of(Slot::grad_scale)] = slots[index_of(Slot::loss_scale)] * inverse;
      return;
    }
    case DeviceKind::meta:
      return;
    case DeviceKind::cuda:
      break;
  }
#ifdef PHX_HAVE_CUDA
  cuda::invert_tokens(tensor_);
#endif
}

void StepScalars::clear_skip() {
  Tensor skip = slot(Slot::skip);
  set_zero(skip);
}

void StepScalars::publish() {
  PHX_CHECK(published_.size() < copies_.size(),
            "step scalars: two steps are published already; collect one of them first");
  copy(tensor_, copies_[next_copy_]);
  published_.push_back({next_copy_, tensor_.runtime().stream(StreamName::compute).record()});
  next_copy_ = 1 - next_copy_;
}

StepResults StepScalars::collect() {
  PHX_CHECK(!published_.empty(), "step scalars: collect without a publish before it");
  const Copy from = published_.front();
  published_.pop_front();
  std::array<double, kNumSlots> slots;
  // By the lane of copies to the host: the compute stream may already be full of the next step.
  Runtime& runtime = tensor_.runtime();
  const Stream lane = runtime.stream(StreamName::d2h);
  lane.wait(from.made);
  runtime.backend().copy_to_host(slots.data(), copies_[from.index].raw(), sizeof(slots),
                                 StreamName::d2h);
  lane.synchronize();
  const auto at = [&](Slot slot) { return slots[index_of(slot)]; };
  return {.step = at(Slot::step),
          .lr = at(Slot::lr),
          .tokens = at(Slot::tokens),
          .loss_scale = at(Slot::loss_scale),
          .loss_sum = at(Slot::loss_sum),
          .grad_norm = at(Slot::grad_norm),
          .nonfinite = at(Slot::nonfinite) != 0,
          .skipped = at(Slot::skip) != 0,
          .stop_votes = at(Slot::stop_votes)};
}

}  // namespace phx
