#include "phalanx/comm/meta_world.h"

#include "phalanx/comm/sent_bytes.h"

namespace phx {

namespace {

class MetaCommunicator : public Communicator {
 public:
  MetaCommunicator(GroupInfo info, std::shared_ptr<TrafficByGroup> traffic)
      : Communicator(std::move(info)), traffic_(std::move(traffic)) {}

 protected:
  bool takes(DeviceKind kind) const override { return kind == DeviceKind::meta; }

  void do_all_reduce(const Tensor& x, ReduceOp, const Tensor&, Stream) override {
    count(CommOp::all_reduce, sent_to_reduce(x, size()));
  }
  void do_all_gather(const Tensor&, const Tensor& full, Stream) override {
    count(CommOp::all_gather, sent_of_whole(full, size()));
  }
  void do_reduce_scatter(const Tensor& full, const Tensor&, const Tensor&, Stream) override {
    count(CommOp::reduce_scatter, sent_of_whole(full, size()));
  }
  void do_broadcast(const Tensor& x, int, Stream) override { count(CommOp::broadcast, x.bytes()); }
  void do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows, const Tensor&,
                     std::span<const int64_t>, Stream) override {
    count(CommOp::all_to_all, sent_to_all(in, send_rows, rank()));
  }
  void do_exchange(std::span<const Message> messages, Stream) override {
    for (const Message& message : messages) {
      const bool sends = message.kind == Message::Kind::send;
      count(sends ? CommOp::send : CommOp::receive, sends ? message.tensor.bytes() : 0);
    }
  }
  void do_barrier() override { count(CommOp::barrier, 0); }

 private:
  void count(CommOp op, int64_t bytes) {
    Traffic& traffic = (*traffic_)[{name(), op}];
    ++traffic.calls;
    traffic.bytes_sent += bytes;
  }

  std::shared_ptr<TrafficByGroup> traffic_;
};

}  // namespace

MetaWorld::MetaWorld(int rank, int size)
    : rank_(rank), size_(size), traffic_(std::make_shared<TrafficByGroup>()) {
  PHX_CHECK(size > 0 && rank >= 0 && rank < size, "there is no rank ", rank, " in a world of ",
            size);
}

std::string MetaWorld::description() const {
  return str_cat("rank ", rank_, " of ", size_, ", planned without the others");
}

std::unique_ptr<Communicator> MetaWorld::make_group(GroupInfo info) {
  return std::make_unique<MetaCommunicator>(std::move(info), traffic_);
}

}  // namespace phx
