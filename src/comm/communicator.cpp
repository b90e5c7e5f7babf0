#include "phalanx/comm/communicator.h"

#include <algorithm>
#include <numeric>

#include "phalanx/comm/byte_transport.h"
#include "phalanx/comm/scratch.h"
#include "phalanx/core/op_trace.h"

namespace phx {

namespace {

bool reducible(DType dtype) {
  return dtype != DType::f8e4m3 && dtype != DType::f8e5m2 && dtype != DType::u16;
}

// Of whole tensors; rank() >= 1.
int64_t row_elements(const Tensor& x) {
  int64_t n = 1;
  for (int i = 1; i < x.rank(); ++i) n *= x.dim(i);
  return n;
}

bool same_rows(const Tensor& a, const Tensor& b) {
  if (a.rank() != b.rank() || a.rank() == 0) return false;
  for (int i = 1; i < a.rank(); ++i)
    if (a.dim(i) != b.dim(i)) return false;
  return true;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (!a.same_storage(b) || a.device().kind() == DeviceKind::meta) return false;
  const auto *x = static_cast<const char*>(a.raw()), *y = static_cast<const char*>(b.raw());
  return x < y + b.bytes() && y < x + a.bytes();
}

// FNV-1a: the same on every machine, which std::hash does not promise.
uint64_t hash(uint64_t h, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    h = (h ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
  return h;
}

}  // namespace

void Communicator::check_device(CommOp op, const Tensor& x) const {
  PHX_CHECK(x.defined(), op, " over ", name(), ": there is no tensor");
  PHX_CHECK(size() == 1 || takes(x.device().kind()), op, " over ", name(), ": the tensor is on ",
            phx::name(x.device().kind()), ", which this group of ranks does not exchange");
}

// `whole` has size() times the rows of `part`.
void Communicator::check_pair(CommOp op, const Tensor& whole, const Tensor& part) const {
  check_device(op, whole);
  check_device(op, part);
  PHX_CHECK(whole.dtype() == part.dtype(), op, " over ", name(), ": full is ", whole.dtype(),
            ", but shard is ", part.dtype());
  PHX_CHECK(whole.device() == part.device(), op, " over ", name(),
            ": full and shard are on different devices");
  PHX_CHECK(same_rows(whole, part) && whole.dim(0) == size() * part.dim(0), op, " over ", name(),
            ": shard is ", part.shape(), ", so full should have ", size(),
            " times its rows, but it is ", whole.shape());
  const char* own = overlap(whole, part) ? static_cast<const char*>(whole.raw()) : nullptr;
  PHX_CHECK(own == nullptr || own + rank() * part.bytes() == part.raw(), op, " over ", name(),
            ": shard lies within full, but not at the rows of rank ", rank());
}

void Communicator::check_apart(CommOp op, const Tensor& in, const Tensor& out) const {
  PHX_CHECK(!overlap(in, out), op, " over ", name(), ": in and out share memory");
}

void Communicator::check_peer(CommOp op, int peer) const {
  PHX_CHECK(peer >= 0 && peer < size(), op, " over ", name(), ": there is no rank ", peer,
            " in a group of ", size());
  PHX_CHECK((op != CommOp::send && op != CommOp::receive) || peer != rank(), op, " over ", name(),
            ": rank ", peer, " is this rank itself");
}

void Communicator::copy_local(const Tensor& from, const Tensor& to, Stream stream) const {
  if (from.device().kind() == DeviceKind::meta || from.bytes() == 0 || from.raw() == to.raw())
    return;
  from.runtime().backend().copy_within(to.raw(), from.raw(), from.bytes(), stream.name());
}

Tensor Communicator::scratch_like(const Tensor& x, int64_t bytes) const {
  if (x.device().target() != DeviceKind::cpu) return {};
  return empty({bytes}, DType::u8, x.device(), Purpose::communication);
}

// Runs a call between its two marks in the ledger; a wait that got stuck leaves with an
// explanation.
template <class Body>
void Communicator::write_down(LedgerCall call, Body&& body) {
  if (!info_.ledgers) return body();
  call.group_id = info_.id;
  call.group = info_.name;
  if (call.peer < 0) {
    call.sequence = ++calls_;
  } else {
    call.sequence = ++messages_[call.peer + (call.op == CommOp::receive ? size() : 0)];
    call.peer = members()[call.peer];
  }
  const uint64_t ticket = info_.ledgers->own().enter(call);
  std::string why;
  try {
    body();
  } catch (const Stalled& stalled) {
    why = str_cat(stalled.what(), ": ",
                  explain_stall(*info_.ledgers, members(), members()[rank()], entry_of(call)));
  } catch (const SizeMismatch& mismatch) {
    const int peer = members()[mismatch.peer];
    why = str_cat("rank ", members()[rank()], " in ", entry_of(call), ": ", mismatch.what());
    const auto theirs = info_.ledgers->read(peer).entries;
    const auto same = std::find_if(theirs.begin(), theirs.end(), [&](const LedgerEntry& entry) {
      return entry.group_id == call.group_id && entry.sequence == call.sequence &&
             !entry.is_message();
    });
    if (same != theirs.end() && call.peer < 0) why += str_cat("; rank ", peer, " is in ", *same);
    why += "; all ranks of a group make the same calls with the same shapes";
  }
  if (!why.empty()) {
    do_fail(why);
    throw_error(why);
  }
  info_.ledgers->own().finish(ticket);
}

template <class Body>
void Communicator::carry_out(const LedgerCall& call, const Tensor& x, Stream stream, Body&& body) {
  const OpScope traced(x.runtime(), {.what = phx::name(call.op),
                                     .of = info_.name.c_str(),
                                     .kind = OpKind::communication,
                                     .stream = stream.name()});
  if (traced.traced()) x.runtime().count({.bytes = call.count * size_of(call.dtype)});
  write_down(call, body);
}

void Communicator::all_reduce(const Tensor& x, Stream stream, ReduceOp op, Site site) {
  check_device(CommOp::all_reduce, x);
  PHX_CHECK(reducible(x.dtype()), "all_reduce over ", name(), ": ", x.dtype(),
            " is not a type to add in; widen it first");
  if (size() == 1 || x.numel() == 0) return;
  const ReducePlan plan = plan_all_reduce(x.numel(), size(), x.dtype());
  const Tensor scratch = scratch_like(x, plan.scratch_bytes(size(), x.dtype()));
  carry_out({.op = CommOp::all_reduce, .dtype = x.dtype(), .count = x.numel(), .site = site}, x,
            stream, [&] { do_all_reduce(x, op, scratch, stream); });
}

void Communicator::all_gather(const Tensor& shard, const Tensor& full, Stream stream, Site site) {
  check_pair(CommOp::all_gather, full, shard);
  if (size() == 1) return copy_local(shard, full, stream);
  if (full.numel() == 0) return;
  carry_out({.op = CommOp::all_gather, .dtype = full.dtype(), .count = full.numel(), .site = site},
            full, stream, [&] { do_all_gather(shard, full, stream); });
}

void Communicator::reduce_scatter(const Tensor& full, const Tensor& shard, Stream stream,
                                  Site site) {
  check_pair(CommOp::reduce_scatter, full, shard);
  PHX_CHECK(reducible(full.dtype()), "reduce_scatter over ", name(), ": ", full.dtype(),
            " is not a type to add in; widen it first");
  if (size() == 1) return copy_local(full, shard, stream);
  if (full.numel() == 0) return;
  const ReducePlan plan = plan_reduce_scatter(shard.numel(), size(), full.dtype());
  const Tensor scratch = scratch_like(full, plan.scratch_bytes(size(), full.dtype()));
  carry_out(
      {.op = CommOp::reduce_scatter, .dtype = full.dtype(), .count = full.numel(), .site = site},
      full, stream, [&] { do_reduce_scatter(full, shard, scratch, stream); });
}

void Communicator::broadcast(const Tensor& x, int root, Stream stream, Site site) {
  check_device(CommOp::broadcast, x);
  check_peer(CommOp::broadcast, root);
  if (size() == 1 || x.numel() == 0) return;
  carry_out({.op = CommOp::broadcast, .dtype = x.dtype(), .count = x.numel(), .site = site}, x,
            stream, [&] { do_broadcast(x, root, stream); });
}

void Communicator::all_to_all(const Tensor& in, const Tensor& out, Stream stream, Site site) {
  check_device(CommOp::all_to_all, in);
  PHX_CHECK(in.rank() > 0 && in.dim(0) % size() == 0, "all_to_all over ", name(), ": in is ",
            in.shape(), ", whose rows are not a multiple of the ", size(), " ranks");
  PHX_CHECK(out.defined() && in.shape() == out.shape(), "all_to_all over ", name(), ": in is ",
            in.shape(), ", so out should be, but it is ", out.defined() ? out.shape() : Shape{});
  const std::vector<int64_t> rows(size(), in.dim(0) / size());
  all_to_all(in, rows, out, rows, stream, site);
}

void Communicator::all_to_all(const Tensor& in, std::span<const int64_t> send_rows,
                              const Tensor& out, std::span<const int64_t> receive_rows,
                              Stream stream, Site site) {
  check_device(CommOp::all_to_all, in);
  check_device(CommOp::all_to_all, out);
  PHX_CHECK(in.dtype() == out.dtype(), "all_to_all over ", name(), ": in is ", in.dtype(),
            ", but out is ", out.dtype());
  PHX_CHECK(same_rows(in, out), "all_to_all over ", name(), ": the rows of in ", in.shape(),
            " and of out ", out.shape(), " differ");
  const auto check_rows = [&](const char* what, std::span<const int64_t> rows, const Tensor& x) {
    PHX_CHECK(rows.size() == size_t(size()), "all_to_all over ", name(), ": ", what, " names ",
              rows.size(), " counts for ", size(), " ranks");
    for (int64_t count : rows)
      PHX_CHECK(count >= 0, "all_to_all over ", name(), ": ", what, " has a count of ", count);
    const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    PHX_CHECK(sum == x.dim(0), "all_to_all over ", name(), ": ", what, " adds up to ", sum,
              " rows, but the tensor is ", x.shape());
  };
  check_apart(CommOp::all_to_all, in, out);
  check_rows("send_rows", send_rows, in);
  check_rows("receive_rows", receive_rows, out);
  PHX_CHECK(send_rows[rank()] == receive_rows[rank()], "all_to_all over ", name(), ": rank ",
            rank(), " sends ", send_rows[rank()], " rows to itself, but receives ",
            receive_rows[rank()]);
  if (size() == 1) return copy_local(in, out, stream);
  if (row_elements(in) == 0) return;
  const int64_t count = std::max(in.numel(), out.numel());
  carry_out({.op = CommOp::all_to_all, .dtype = in.dtype(), .count = count, .site = site}, in,
            stream, [&] { do_all_to_all(in, send_rows, out, receive_rows, stream); });
}

void Communicator::exchange(std::span<const Message> messages, Stream stream, Site site) {
  for (const Message& message : messages) {
    const CommOp op = message.kind == Message::Kind::send ? CommOp::send : CommOp::receive;
    check_device(op, message.tensor);
    check_peer(op, message.peer);
  }
  if (!asynchronous()) {
    // One after the other, sends first: they never wait. The ledger then names the one that does.
    for (const auto kind : {Message::Kind::send, Message::Kind::receive})
      for (const Message& message : messages)
        if (message.kind == kind)
          kind == Message::Kind::send ? send(message.tensor, message.peer, stream, site)
                                      : receive(message.tensor, message.peer, stream, site);
    return;
  }
  for (const Message& message : messages)
    write_down({.op = message.kind == Message::Kind::send ? CommOp::send : CommOp::receive,
                .dtype = message.tensor.dtype(),
                .count = message.tensor.numel(),
                .peer = message.peer,
                .site = site},
               [] {});
  if (messages.empty()) return;
  const OpScope traced(messages[0].tensor.runtime(), {.what = "exchange",
                                                      .of = info_.name.c_str(),
                                                      .kind = OpKind::communication,
                                                      .stream = stream.name()});
  do_exchange(messages, stream);
}

void Communicator::send(const Tensor& x, int peer, Stream stream, Site site) {
  check_device(CommOp::send, x);
  check_peer(CommOp::send, peer);
  const Message message{.kind = Message::Kind::send, .tensor = x.detach(), .peer = peer};
  carry_out(
      {.op = CommOp::send, .dtype = x.dtype(), .count = x.numel(), .peer = peer, .site = site}, x,
      stream, [&] {
        do_exchange({&message, 1}, stream);
      });
}

void Communicator::receive(const Tensor& x, int peer, Stream stream, Site site) {
  check_device(CommOp::receive, x);
  check_peer(CommOp::receive, peer);
  const Message message{.kind = Message::Kind::receive, .tensor = x.detach(), .peer = peer};
  carry_out(
      {.op = CommOp::receive, .dtype = x.dtype(), .count = x.numel(), .peer = peer, .site = site},
      x, stream, [&] {
        do_exchange({&message, 1}, stream);
      });
}

void Communicator::barrier(Site site) {
  if (size() == 1) return;
  write_down({.op = CommOp::barrier, .site = site}, [&] { do_barrier(); });
}

std::unique_ptr<Communicator> World::group(std::vector<int> ranks, std::string name) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  PHX_CHECK(self != ranks.end(), "group ", name, ": rank ", rank(), " is not among its members");
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  PHX_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "group ", name,
            ": a rank is named twice");
  PHX_CHECK(sorted.front() >= 0 && sorted.back() < size(), "group ", name, ": there is no rank ",
            sorted.front() < 0 ? sorted.front() : sorted.back(), " in a world of ", size());
  const int instance = made_[{name, ranks}]++;
  uint64_t id = hash(14695981039346656037ull, name.data(), name.size());
  for (int member : ranks) id = hash(id, &member, sizeof member);
  id = hash(id, &instance, sizeof instance);
  GroupInfo info{.name = std::move(name),
                 .members = std::move(ranks),
                 .rank = 0,
                 .id = id,
                 .ledgers = ledgers()};
  info.rank =
      int(std::find(info.members.begin(), info.members.end(), rank()) - info.members.begin());
  return make_group(std::move(info));
}

}  // namespace phx
