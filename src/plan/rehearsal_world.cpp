#include "phalanx/plan/rehearsal_world.h"

#include <algorithm>
#include <optional>

#include "phalanx/comm/sent_bytes.h"
#include "phalanx/kernels/paced_copy.h"

namespace phx {

struct RehearsalWorld::Line {
  Wire wire;
  std::optional<Fence> free;  // when the last transfer has ended
};

class RehearsalCommunicator : public Communicator {
 public:
  RehearsalCommunicator(GroupInfo info, std::shared_ptr<RehearsalWorld::Line> line)
      : Communicator(std::move(info)), line_(std::move(line)) {}

  bool asynchronous() const override { return true; }

 protected:
  bool takes(DeviceKind kind) const override { return kind != DeviceKind::meta; }

  void do_all_reduce(const Tensor& x, ReduceOp, const Tensor&, Stream stream) override {
    transfer(x, x, sent_to_reduce(x, size()), stream);
  }
  void do_all_gather(const Tensor& shard, const Tensor& full, Stream stream) override {
    transfer(shard, full, sent_of_whole(full, size()), stream);
  }
  void do_reduce_scatter(const Tensor& full, const Tensor& shard, const Tensor&,
                         Stream stream) override {
    transfer(full.rows(rank() * shard.dim(0), shard.dim(0)), shard, sent_of_whole(full, size()),
             stream);
  }
  void do_broadcast(const Tensor& x, int, Stream stream) override {
    transfer(x, x, x.bytes(), stream);
  }
  void do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows, const Tensor& out,
                     std::span<const int64_t>, Stream stream) override {
    transfer(in, out, sent_to_all(in, send_rows, rank()), stream);
  }
  // The i-th receive gets the bytes of the i-th send, or of the last one.
  void do_exchange(std::span<const Message> messages, Stream stream) override {
    std::vector<Tensor> sent;
    int64_t bytes = 0;
    for (const Message& message : messages) {
      if (message.kind != Message::Kind::send) continue;
      sent.push_back(message.tensor);
      bytes += message.tensor.bytes();
    }
    size_t received = 0;
    for (const Message& message : messages) {
      if (message.kind != Message::Kind::receive) continue;
      const Tensor& from =
          sent.empty() ? message.tensor : sent[std::min(received, sent.size() - 1)];
      transfer(from, message.tensor, bytes, stream);
      bytes = 0;  // all messages of a call travel together
      ++received;
    }
    if (received == 0 && !sent.empty()) transfer(sent[0], sent[0], bytes, stream);
  }
  void do_barrier() override {}

 private:
  void transfer(const Tensor& from, const Tensor& to, int64_t bytes, Stream stream) {
    if (to.bytes() == 0 && bytes == 0) return;
    const Wire& wire = line_->wire;
    const double on_wire = wire.bytes_per_second > 0 ? double(bytes) / wire.bytes_per_second : 0;
    if (line_->free) stream.wait(*line_->free);
    kernels::paced_copy(from.bytes() > 0 ? from : to, to, on_wire + wire.seconds_per_call, stream);
    line_->free = stream.record();
  }

  std::shared_ptr<RehearsalWorld::Line> line_;
};

RehearsalWorld::RehearsalWorld(int rank, int size, const Wire& wire)
    : rank_(rank), size_(size), line_(std::make_shared<Line>(Line{.wire = wire, .free = {}})) {
  PHX_CHECK(size > 0 && rank >= 0 && rank < size, "there is no rank ", rank, " in a world of ",
            size);
}

RehearsalWorld::~RehearsalWorld() = default;

std::string RehearsalWorld::description() const {
  return str_cat("rank ", rank_, " of ", size_, ", rehearsed without the others");
}

std::unique_ptr<Communicator> RehearsalWorld::make_group(GroupInfo info) {
  return std::make_unique<RehearsalCommunicator>(std::move(info), line_);
}

}  // namespace phx
