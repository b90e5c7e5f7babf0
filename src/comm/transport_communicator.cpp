#include "phalanx/comm/transport_communicator.h"

#include <cstring>

#include "phalanx/comm/reduce_in_order.h"
#include "phalanx/comm/scratch.h"

namespace phx {

namespace {

// Beyond this a root's bytes are dealt out and then gathered: it sends them once, not to everybody.
constexpr int64_t kDirectBroadcastBytes = 64 << 10;

std::byte* bytes_of(const Tensor& x) { return static_cast<std::byte*>(x.raw()); }

// [begin, end) of `n` things for rank `r`, if each has `piece` of them and the last ones less.
struct Range {
  Range(int64_t r, int64_t piece, int64_t n)
      : begin(std::min(r * piece, n)), end(std::min(begin + piece, n)) {}
  // The k-th block of `size` within.
  Range block(int64_t k, int64_t size) const {
    Range part = *this;
    part.begin = std::min(begin + k * size, end);
    part.end = std::min(part.begin + size, end);
    return part;
  }
  int64_t size() const { return end - begin; }
  int64_t begin, end;
};

}  // namespace

void TransportCommunicator::all_reduce_directly(const Tensor& x, ReduceOp op,
                                                const Tensor& scratch) {
  std::vector<ByteView> to(size(), ByteView(bytes_of(x), x.bytes()));
  std::vector<ByteRoom> from(size());
  std::vector<const void*> in(size());
  for (int r = 0; r < size(); ++r) {
    from[r] = ByteRoom(bytes_of(scratch) + r * x.bytes(), x.bytes());
    in[r] = r == rank() ? x.raw() : from[r].data();
  }
  transport_->all_to_all(to, from);
  reduce_in_order(in, x.raw(), x.numel(), x.dtype(), op, x.runtime().threads());
}

void TransportCommunicator::do_all_reduce(const Tensor& x, ReduceOp op, const Tensor& scratch,
                                          Stream) {
  const ReducePlan plan = plan_all_reduce(x.numel(), size(), x.dtype());
  if (plan.direct) return all_reduce_directly(x, op, scratch);
  const int64_t width = size_of(x.dtype());
  std::vector<ByteView> to(size());
  std::vector<ByteRoom> from(size());
  std::vector<const void*> in(size());
  for (int64_t k = 0; k * plan.block < plan.piece; ++k) {
    const Range mine = Range(rank(), plan.piece, x.numel()).block(k, plan.block);
    std::byte* own = bytes_of(x) + mine.begin * width;
    for (int r = 0; r < size(); ++r) {
      const Range theirs = Range(r, plan.piece, x.numel()).block(k, plan.block);
      to[r] = ByteView(bytes_of(x) + theirs.begin * width, theirs.size() * width);
      from[r] = ByteRoom(bytes_of(scratch) + r * plan.block * width, mine.size() * width);
      in[r] = r == rank() ? own : from[r].data();
    }
    transport_->all_to_all(to, from);
    reduce_in_order(in, own, mine.size(), x.dtype(), op, x.runtime().threads());
    for (int r = 0; r < size(); ++r) {  // the way back: my sums to all, theirs over their places
      from[r] = ByteRoom(const_cast<std::byte*>(to[r].data()), to[r].size());
      to[r] = ByteView(own, mine.size() * width);
    }
    transport_->all_to_all(to, from);
  }
}

void TransportCommunicator::do_reduce_scatter(const Tensor& full, const Tensor& shard,
                                              const Tensor& scratch, Stream) {
  const ReducePlan plan = plan_reduce_scatter(shard.numel(), size(), full.dtype());
  const int64_t width = size_of(full.dtype());
  std::vector<ByteView> to(size());
  std::vector<ByteRoom> from(size());
  std::vector<const void*> in(size());
  for (int64_t k = 0; k * plan.block < plan.piece; ++k) {
    const Range mine = Range(rank(), plan.piece, full.numel()).block(k, plan.block);
    for (int r = 0; r < size(); ++r) {
      const Range theirs = Range(r, plan.piece, full.numel()).block(k, plan.block);
      to[r] = ByteView(bytes_of(full) + theirs.begin * width, theirs.size() * width);
      from[r] = ByteRoom(bytes_of(scratch) + r * plan.block * width, mine.size() * width);
      in[r] = r == rank() ? to[r].data() : from[r].data();
    }
    transport_->all_to_all(to, from);
    reduce_in_order(in, bytes_of(shard) + k * plan.block * width, mine.size(), full.dtype(),
                    ReduceOp::sum, full.runtime().threads());
  }
}

void TransportCommunicator::do_all_gather(const Tensor& shard, const Tensor& full, Stream) {
  std::vector<ByteView> to(size(), ByteView(bytes_of(shard), shard.bytes()));
  std::vector<ByteRoom> from(size());
  for (int r = 0; r < size(); ++r)
    from[r] = ByteRoom(bytes_of(full) + r * shard.bytes(), shard.bytes());
  if (from[rank()].data() != bytes_of(shard))
    std::memcpy(from[rank()].data(), shard.raw(), shard.bytes());
  transport_->all_to_all(to, from);
}

void TransportCommunicator::do_broadcast(const Tensor& x, int root, Stream) {
  const ByteRoom all(bytes_of(x), x.bytes());
  std::vector<ByteView> to(size());
  std::vector<ByteRoom> from(size());
  if (x.bytes() <= kDirectBroadcastBytes) {
    if (rank() == root) std::fill(to.begin(), to.end(), ByteView(all));
    if (rank() != root) from[root] = all;
    return transport_->all_to_all(to, from);
  }
  std::vector<ByteRoom> pieces(size());
  for (int r = 0; r < size(); ++r) {
    const Range range(r, ceil_div(x.bytes(), size()), x.bytes());
    pieces[r] = all.subspan(range.begin, range.size());
  }
  if (rank() == root) std::copy(pieces.begin(), pieces.end(), to.begin());
  if (rank() != root) from[root] = pieces[rank()];
  transport_->all_to_all(to, from);

  std::fill(to.begin(), to.end(), ByteView(pieces[rank()]));
  to[root] = {};  // which has it all
  if (rank() == root) {
    std::fill(from.begin(), from.end(), ByteRoom());
  } else {
    from = pieces;
  }
  transport_->all_to_all(to, from);
}

void TransportCommunicator::do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows,
                                          const Tensor& out, std::span<const int64_t> receive_rows,
                                          Stream) {
  std::vector<ByteView> to(size());
  std::vector<ByteRoom> from(size());
  int64_t row_bytes = size_of(in.dtype());
  for (int i = 1; i < in.rank(); ++i) row_bytes *= in.dim(i);
  std::byte* source = bytes_of(in);
  std::byte* target = bytes_of(out);
  for (int r = 0; r < size(); ++r) {
    to[r] = ByteView(source, send_rows[r] * row_bytes);
    from[r] = ByteRoom(target, receive_rows[r] * row_bytes);
    source += to[r].size();
    target += from[r].size();
  }
  std::memmove(from[rank()].data(), to[rank()].data(), to[rank()].size());
  transport_->all_to_all(to, from);
}

void TransportCommunicator::do_exchange(std::span<const Message> messages, Stream) {
  for (const Message& message : messages) {
    const Tensor& x = message.tensor;
    if (message.kind == Message::Kind::send)
      transport_->send(ByteView(bytes_of(x), x.bytes()), message.peer);
  }
  for (const Message& message : messages) {
    const Tensor& x = message.tensor;
    if (message.kind == Message::Kind::receive)
      transport_->receive(ByteRoom(bytes_of(x), x.bytes()), message.peer);
  }
}

}  // namespace phx
