// Every collective for cpu tensors on top of a ByteTransport. Who moves the bytes makes no
// difference to what comes out.
#pragma once

#include <memory>

#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/communicator.h"

namespace phx {

class TransportCommunicator : public Communicator {
 public:
  // `transport` may be none for a group of one.
  TransportCommunicator(GroupInfo info, std::unique_ptr<ByteTransport> transport)
      : Communicator(std::move(info)), transport_(std::move(transport)) {}

 protected:
  bool takes(DeviceKind kind) const override { return kind == DeviceKind::cpu; }
  void do_all_reduce(const Tensor& x, ReduceOp op, const Tensor& scratch, Stream stream) override;
  void do_all_gather(const Tensor& shard, const Tensor& full, Stream stream) override;
  void do_reduce_scatter(const Tensor& full, const Tensor& shard, const Tensor& scratch,
                         Stream stream) override;
  void do_broadcast(const Tensor& x, int root, Stream stream) override;
  void do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows, const Tensor& out,
                     std::span<const int64_t> receive_rows, Stream stream) override;
  void do_exchange(std::span<const Message> messages, Stream stream) override;
  void do_barrier() override { transport_->barrier(); }
  void do_fail(const std::string& why) override { transport_->fail(why); }

 private:
  void all_reduce_directly(const Tensor& x, ReduceOp op, const Tensor& scratch);

  std::unique_ptr<ByteTransport> transport_;
};

}  // namespace phx
