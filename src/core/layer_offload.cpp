#include "phalanx/core/layer_offload.h"

#include <utility>

#include "phalanx/core/autograd.h"

namespace phx {

// What one layer keeps, of one micro-batch.
class LayerOffload::Saves {
 public:
  explicit Saves(Runtime& runtime) : runtime_(runtime), host_(runtime.extension<HostSide>()) {}

  void add(std::weak_ptr<Storage> storage) { items_.push_back({std::move(storage), {}}); }

  // Enqueues the copies to the host, behind what has been computed so far.
  void send() {
    const Stream d2h = runtime_.stream(StreamName::d2h);
    d2h.wait(runtime_.stream(StreamName::compute).record());
    for (Item& item : items_) {
      const std::shared_ptr<Storage> storage = item.storage.lock();
      const Shape bytes{storage->bytes()};
      item.copy = empty(bytes, DType::u8, host_.pinned(), Purpose::activations);
      host_.to_host(Tensor(storage, 0, bytes, DType::u8), item.copy, StreamName::d2h);
    }
    copied_ = d2h.record();
  }

  // Computation waits for the copies, whose sources may then be written to by others.
  void give_back() {
    runtime_.stream(StreamName::compute).wait(std::exchange(copied_, {}));
    for (const Item& item : items_)
      if (const auto storage = item.storage.lock()) storage->give_back();
  }

  // Enqueues the copies back, into memory whose last use is among what has been enqueued so far.
  void fetch() {
    if (std::exchange(fetched_, true)) return;
    const Stream h2d = runtime_.stream(StreamName::h2d);
    std::vector<std::shared_ptr<Storage>> storages;
    for (const Item& item : items_) {
      storages.push_back(item.storage.lock());
      if (storages.back() != nullptr) storages.back()->take_again();
    }
    h2d.wait(runtime_.stream(StreamName::compute).record());
    for (size_t i = 0; i < items_.size(); ++i)
      if (storages[i] != nullptr)
        host_.to_device(items_[i].copy, Tensor(storages[i], 0, {storages[i]->bytes()}, DType::u8),
                        StreamName::h2d);
    copied_ = h2d.record();
  }

  // Computation may use them from here on. The host's memory is free: whatever is copied into it
  // next waits for this computation.
  void arrive() {
    fetch();
    runtime_.stream(StreamName::compute).wait(std::exchange(copied_, {}));
    items_.clear();
  }

 private:
  struct Item {
    std::weak_ptr<Storage> storage;
    Tensor copy;  // u8 [bytes], on the host
  };
  Runtime& runtime_;
  HostSide& host_;
  std::vector<Item> items_;
  Fence copied_;
  bool fetched_ = false;
};

LayerOffload::LayerOffload(Runtime& runtime) : runtime_(runtime) {}

LayerOffload::~LayerOffload() = default;

// y itself, whose backward first sees to the saves of its layer and of the one below.
Tensor LayerOffload::with_hook(const Tensor& y, std::shared_ptr<Saves> own,
                               std::shared_ptr<Saves> below) {
  return with_backward(
      y, {y}, [own = std::move(own), below = std::move(below)](const Tensor& dy, GradOut& grad) {
        if (own != nullptr) own->arrive();
        if (below != nullptr) below->fetch();
        grad.pass(0, dy);
      });
}

Tensor LayerOffload::run(Tensor x, const Layer& layer) {
  if (!runtime_.grad_enabled()) return layer(x);
  std::vector<std::weak_ptr<Storage>> made = {x.storage()};
  Tensor y;
  {
    StorageWatch watch(runtime_, made);
    y = layer(x);
  }
  x = {};
  auto saves = std::make_shared<Saves>(runtime_);
  for (const auto& candidate : made) {
    const auto storage = candidate.lock();
    if (storage == nullptr || storage == y.storage() || !storage->resident()) continue;
    if (storage->purpose() == Purpose::activations) saves->add(candidate);
  }
  saves->send();
  if (leaving_ != nullptr) leaving_->give_back();
  leaving_ = saves;
  return with_hook(y, saves, std::exchange(last_, saves));
}

Tensor LayerOffload::run_kept(Tensor x, const Layer& layer) {
  Tensor y = layer(x);
  if (!runtime_.grad_enabled()) return y;
  finish();
  return last_ == nullptr ? y : with_hook(y, nullptr, std::exchange(last_, nullptr));
}

void LayerOffload::finish() {
  if (leaving_ != nullptr) std::exchange(leaving_, nullptr)->give_back();
}

}  // namespace phx
