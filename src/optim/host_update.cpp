#include "phalanx/optim/host_update.h"

#include <algorithm>

#include "phalanx/kernels/elementwise.h"

namespace phx {

namespace {

constexpr size_t kOverlapped = 3;  // one arrives, one is computed, one leaves

}  // namespace

HostUpdate::HostUpdate(ParameterStore& store, const OptimizerConfig& config, const UpdateRule& rule,
                       std::vector<FlatRange> ranges, uint64_t seed)
    : store_(store),
      config_(config),
      rule_(rule),
      seed_(seed),
      host_(store.weights().runtime().extension<HostSide>()),
      share_(std::move(ranges), store, config, rule, host_.plain()) {
  int64_t longest = 0;
  for (const SharePiece& piece : share_.pieces) {
    for (int64_t at = 0; at < piece.of_store.count; at += config.optimizer_offload_chunk) {
      const int64_t count = std::min(config.optimizer_offload_chunk, piece.of_store.count - at);
      Chunk chunk{.piece = piece};
      chunk.piece.of_store = {piece.of_store.offset + at, count};
      chunk.piece.of_states = {piece.of_states.offset + at, count};
      chunk.piece.first += at;
      chunks_.push_back(chunk);
      longest = std::max(longest, count);
    }
  }
  buffers_.resize(std::min(config.overlap_cpu_optimizer_d2h_h2d ? kOverlapped : 1, chunks_.size()));
  for (Buffer& buffer : buffers_) {
    buffer.gradient =
        empty({longest}, store.gradients().dtype(), host_.pinned(), Purpose::optimizer);
    buffer.weight = empty({longest}, store.weights().dtype(), host_.pinned(), Purpose::optimizer);
  }
  for (size_t i = 0; i < chunks_.size(); ++i) chunks_[i].buffer = &buffers_[i % buffers_.size()];
  scalars_ = empty({kNumSlots}, DType::f64, host_.pinned(), Purpose::optimizer);
  for (Tensor& state : share_.states) host_.set_zero(state);
  masters_from_weights();
}

void HostUpdate::masters_from_weights() {
  if (!share_.master.defined()) return;
  if (share_.master.dtype() == DType::u16) {
    host_.set_zero(share_.master);  // the master is the weight, nothing remains
    return;
  }
  Runtime& device = store_.weights().runtime();
  for (const Chunk& chunk : chunks_) {
    const Tensor weight = chunk.buffer->weight.rows(0, chunk.piece.of_store.count);
    host_.to_host(store_.weights(chunk.piece.of_store), weight, StreamName::compute);
    device.synchronize();
    Tensor master = part(share_.master, chunk.piece.of_states);
    kernels::cast(weight, master);
  }
}

void HostUpdate::fetch(Chunk& chunk) {
  const FlatRange& range = chunk.piece.of_store;
  Buffer& buffer = *chunk.buffer;
  const Stream d2h = store_.weights().runtime().stream(StreamName::d2h);
  d2h.wait(buffer.left);  // what the buffer held before is on its way no more
  host_.to_host(store_.gradients(range), buffer.gradient.rows(0, range.count), StreamName::d2h);
  host_.to_host(store_.weights(range), buffer.weight.rows(0, range.count), StreamName::d2h);
  buffer.arrived = d2h.record();
}

void HostUpdate::begin(const StepScalars& scalars) {
  Runtime& device = store_.weights().runtime();
  const Stream d2h = device.stream(StreamName::d2h);
  d2h.wait(device.stream(StreamName::compute).record());
  host_.to_host(scalars.tensor(), scalars_, StreamName::d2h);
  scalars_arrived_ = d2h.record();
  for (size_t i = 0; i < buffers_.size(); ++i) fetch(chunks_[i]);
}

void HostUpdate::update(const Chunk& chunk) {
  const SharePiece& piece = chunk.piece;
  const int64_t count = piece.of_store.count;
  const Tensor weight = chunk.buffer->weight.rows(0, count);
  rule_.update(share_.call_for(piece, chunk.buffer->gradient.rows(0, count), weight, scalars_,
                               config_, seed_),
               rule_.options);
  host_.to_device(weight, store_.weights(piece.of_store), StreamName::h2d);
}

void HostUpdate::finish() {
  Runtime& device = store_.weights().runtime();
  const Stream h2d = device.stream(StreamName::h2d);
  device.wait_on_host(scalars_arrived_);
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Buffer& buffer = *chunks_[i].buffer;
    device.wait_on_host(buffer.arrived);
    update(chunks_[i]);
    buffer.left = h2d.record();
    if (i + buffers_.size() < chunks_.size()) fetch(chunks_[i + buffers_.size()]);
  }
  device.stream(StreamName::compute).wait(h2d.record());
}

}  // namespace phx
