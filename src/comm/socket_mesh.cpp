#include "phalanx/comm/socket_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "phalanx/comm/mesh_connections.h"

namespace phx {

namespace {

constexpr size_t kMostAtOnce = 8 << 20;  // of one connection, before the others get their turn
constexpr auto kLookAtLinks = std::chrono::seconds(1);

std::string connection_closed(int error_number) {
  return str_cat("its connection closed",
                 error_number == 0 ? "" : str_cat(" (", system_text(error_number), ")"));
}

std::string unanswered_text(std::chrono::seconds limit) {
  return str_cat("nothing came back from it for ", limit.count(),
                 " s, not even an acknowledgement: its machine or the network is down");
}

}  // namespace

SocketMesh::SocketMesh(const LaunchEnvironment& environment, TcpStore& store,
                       std::chrono::milliseconds timeout, std::function<void()> on_own_failure)
    : rank_(environment.rank),
      size_(environment.size),
      timeout_(timeout),
      on_own_failure_(std::move(on_own_failure)),
      peers_(environment.size),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PHX_CHECK(wake_.is_open(), "eventfd failed: ", system_text(errno));
  std::vector<MeshConnection> connections = connect_to_all(environment, store, timeout_);
  for (int r = 0; r < size_; ++r) {
    peers_[r].socket = std::move(connections[r].socket);
    peers_[r].where = std::move(connections[r].where);
    peers_[r].closed = r == rank_;
  }
  helper_ = std::thread([this] { run_helper(); });
}

SocketMesh::~SocketMesh() {
  leave();
  helper_.join();
}

// --- who drives

std::unique_lock<std::mutex> SocketMesh::take_over() {
  wanted_by_rank_ = true;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    const uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    lock.lock();
  }
  return lock;
}

void SocketMesh::hand_over(std::unique_lock<std::mutex> lock) {
  wanted_by_rank_ = false;
  const bool output = has_output();
  lock.unlock();
  if (output) changed_.notify_one();
}

void SocketMesh::run_helper() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || (has_output() && !wanted_by_rank_ && !failure_); });
    if (stop_) return;
    try {
      progress(deadline_in(std::chrono::hours(1)));
    } catch (const std::exception& error) {
      note_failure(rank_, str_cat("rank ", rank_, " failed: ", error.what()));
    }
  }
}

// --- calls

void SocketMesh::exchange(const Channel& channel, uint64_t sequence, std::span<const Part> parts) {
  auto lock = take_over();
  try {
    throw_if_failed();
    for (const Part& part : parts)
      if (!part.in.empty()) want(channel, part.peer, {sequence, part.in});
    for (const Part& part : parts) {
      if (part.out.empty()) continue;
      ++unsent_;
      enqueue(part.peer, {.header = {.kind = channel.kind,
                                     .group = channel.group,
                                     .sequence = sequence,
                                     .bytes = part.out.size()},
                          .body = part.out,
                          .counted = true});
    }
    finish_call();
  } catch (...) {
    withdraw();
    hand_over(std::move(lock));
    throw;
  }
  hand_over(std::move(lock));
}

void SocketMesh::send(const Channel& channel, uint64_t sequence, int peer, ByteView bytes) {
  auto lock = take_over();
  Outgoing frame{.header = {.kind = channel.kind,
                            .group = channel.group,
                            .sequence = sequence,
                            .bytes = bytes.size()},
                 .owned = pool_.copy_of(bytes)};
  frame.body = frame.owned.room();
  try {
    throw_if_failed();
    enqueue(peer, std::move(frame));
  } catch (...) {
    hand_over(std::move(lock));
    throw;
  }
  hand_over(std::move(lock));
}

void SocketMesh::receive(const Channel& channel, uint64_t sequence, int peer, ByteRoom room) {
  auto lock = take_over();
  try {
    throw_if_failed();
    want(channel, peer, {sequence, room});
    finish_call();
  } catch (...) {
    withdraw();
    hand_over(std::move(lock));
    throw;
  }
  hand_over(std::move(lock));
}

void SocketMesh::finish_call() {
  const Deadline deadline = deadline_in(timeout_);
  while (true) {
    if (mismatch_) throw *mismatch_;
    if (wanted_.empty() && unsent_ == 0) return;
    throw_if_failed();
    if (const auto gone = hopeless()) throw Stalled(str_cat("rank ", *gone, " has ended"));
    if (milliseconds_until(deadline) == 0)
      throw Stalled(
          str_cat("nothing came for ", std::chrono::duration<double>(timeout_).count(), " s"));
    progress(std::min(deadline, deadline_in(kLookAtLinks)));
    lose_unanswered();
  }
}

void SocketMesh::withdraw() {
  wanted_.clear();
  mismatch_.reset();
  unsent_ = 0;
  for (Peer& peer : peers_) {
    if (peer.in.direct) {  // the rest of the frame goes elsewhere, and then nowhere
      peer.in.direct = false;
      peer.in.kept = pool_.take(peer.in.target.size());
      peer.in.target = peer.in.kept.room();
    }
    std::erase_if(peer.out, [](const Outgoing& frame) { return frame.counted && frame.sent == 0; });
    for (Outgoing& frame : peer.out) {  // half a frame must be finished, or nothing can follow it
      if (!frame.counted) continue;
      frame.counted = false;
      frame.owned = pool_.copy_of(frame.body);
      frame.body = frame.owned.room();
    }
  }
}

std::optional<int> SocketMesh::hopeless() const {
  for (const auto& [key, wanted] : wanted_)
    if (peers_[key.second].closed || peers_[key.second].left) return key.second;
  if (unsent_ > 0)
    for (int r = 0; r < size_; ++r)
      if (peers_[r].closed && !peers_[r].out.empty()) return r;
  return std::nullopt;
}

// --- frames

void SocketMesh::enqueue(int peer, Outgoing frame) {
  auto& queue = peers_[peer].out;
  queue.push_back(std::move(frame));
  if (queue.size() == 1) write(peer);
}

void SocketMesh::want(const Channel& channel, int peer, const Wanted& wanted) {
  wanted_.emplace(std::pair(channel, peer), wanted);
  take_kept(channel, peer);
}

// Whether a frame is the one that is waited for; if not, the ranks have called different things.
bool SocketMesh::fits(int rank, const Wanted& wanted, uint64_t sequence, size_t bytes) {
  if (sequence < wanted.sequence)
    mismatch_.emplace(rank, bytes, 0);
  else if (sequence > wanted.sequence)
    mismatch_.emplace(rank, 0, wanted.room.size());
  else if (bytes != wanted.room.size())
    mismatch_.emplace(rank, bytes, wanted.room.size());
  else
    return true;
  return false;
}

void SocketMesh::take_kept(const Channel& channel, int rank) {
  const auto wanted = wanted_.find({channel, rank});
  const auto kept = kept_.find({channel, rank});
  if (wanted == wanted_.end() || kept == kept_.end() || kept->second.empty()) return;
  Kept& frame = kept->second.front();
  if (!fits(rank, wanted->second, frame.sequence, frame.bytes.size())) return;
  if (frame.bytes.size() > 0)
    std::memcpy(wanted->second.room.data(), frame.bytes.data(), frame.bytes.size());
  pool_.give_back(std::move(frame.bytes));
  kept->second.pop_front();
  wanted_.erase(wanted);
}

void SocketMesh::progress(Deadline deadline) {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r) {
    if (peers_[r].closed) continue;
    entries.push_back(
        {peers_[r].socket.get(), short(POLLIN | (peers_[r].out.empty() ? 0 : POLLOUT)), 0});
    ranks.push_back(r);
  }
  if (::poll(entries.data(), entries.size(), milliseconds_until(deadline)) < 0) {
    PHX_CHECK(errno == EINTR, "poll failed: ", system_text(errno));
    return;
  }
  if (entries[0].revents != 0) {
    uint64_t count;
    (void)!::read(wake_.get(), &count, sizeof count);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const short ready = entries[i + 1].revents;
    if (ready & POLLOUT) write(ranks[i]);
    if (ready & (POLLIN | POLLHUP | POLLERR)) read(ranks[i]);
  }
}

void SocketMesh::write(int rank) {
  Peer& peer = peers_[rank];
  while (!peer.closed && !peer.out.empty()) {
    Outgoing& frame = peer.out.front();
    const size_t total = sizeof frame.header + frame.body.size();
    iovec parts[2];
    int count = 0;
    if (frame.sent < sizeof frame.header)
      parts[count++] = {reinterpret_cast<char*>(&frame.header) + frame.sent,
                        sizeof frame.header - frame.sent};
    const size_t body_sent = std::max(frame.sent, sizeof frame.header) - sizeof frame.header;
    if (body_sent < frame.body.size())
      parts[count++] = {const_cast<std::byte*>(frame.body.data()) + body_sent,
                        frame.body.size() - body_sent};
    const msghdr message{.msg_iov = parts, .msg_iovlen = size_t(count)};
    const ssize_t sent = ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return;
      // What the peer said last may still lie here, and says more than "broken pipe".
      const int error = errno;
      read(rank);
      if (!peer.closed) lose(rank, connection_closed(error));
      return;
    }
    frame.sent += size_t(sent);
    if (frame.sent < total) return;
    if (frame.counted) --unsent_;
    pool_.give_back(std::move(frame.owned));
    peer.out.pop_front();
  }
}

void SocketMesh::read(int rank) {
  Peer& peer = peers_[rank];
  Incoming& in = peer.in;
  size_t total = 0;
  while (!peer.closed && total < kMostAtOnce) {
    const bool header = in.header_got < sizeof in.header;
    std::byte* to = header ? reinterpret_cast<std::byte*>(&in.header) + in.header_got
                           : in.target.data() + in.body_got;
    const size_t room = header ? sizeof in.header - in.header_got : in.target.size() - in.body_got;
    const ssize_t got = ::recv(peer.socket.get(), to, room, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == ETIMEDOUT)
        lose(rank, unanswered_text(silence_limit(timeout_)));
      else if (errno != EAGAIN)
        lose(rank, connection_closed(errno));
      return;
    }
    if (got == 0) return lose(rank, connection_closed(0));
    total += size_t(got);
    (header ? in.header_got : in.body_got) += size_t(got);
    if (header && in.header_got == sizeof in.header) begin_body(rank);
    if (in.header_got == sizeof in.header && in.body_got == in.target.size()) end_frame(rank);
  }
}

void SocketMesh::begin_body(int rank) {
  Incoming& in = peers_[rank].in;
  PHX_ASSERT(in.header.magic == Header{}.magic, "rank ", rank, " sent something that is no frame");
  if (in.header.kind <= Channel::message) {
    const Channel channel{in.header.group, Channel::Kind(in.header.kind)};
    const auto wanted = wanted_.find({channel, rank});
    const auto kept = kept_.find({channel, rank});
    const bool next = kept == kept_.end() || kept->second.empty();
    if (next && wanted != wanted_.end() &&
        fits(rank, wanted->second, in.header.sequence, in.header.bytes)) {
      in.direct = true;
      in.target = wanted->second.room;
      return;
    }
  }
  in.kept = pool_.take(in.header.bytes);
  in.target = in.kept.room();
}

void SocketMesh::end_frame(int rank) {
  Peer& peer = peers_[rank];
  Incoming in = std::exchange(peer.in, Incoming{});
  const Channel channel{in.header.group, Channel::Kind(in.header.kind)};
  if (in.header.kind == kGoodbye) {
    peer.left = true;
  } else if (in.header.kind == kFailure) {
    note_failure(int(in.header.origin),
                 std::string(reinterpret_cast<const char*>(in.kept.data()), in.kept.size()));
  } else if (in.direct) {
    wanted_.erase({channel, rank});
  } else {
    kept_[{channel, rank}].push_back({in.header.sequence, std::move(in.kept)});
    take_kept(channel, rank);
  }
}

// --- the end, good or bad

void SocketMesh::lose(int rank, const std::string& how) {
  Peer& peer = peers_[rank];
  peer.closed = true;
  if (!peer.left) note_failure(rank, str_cat("rank ", rank, peer.where, " died: ", how));
}

// A machine that lost its power or its network says nothing: its silence does.
void SocketMesh::lose_unanswered() {
  if (milliseconds_until(next_look_) > 0) return;
  next_look_ = deadline_in(kLookAtLinks);
  const std::chrono::seconds limit = silence_limit(timeout_);
  for (int r = 0; r < size_; ++r)
    if (!peers_[r].closed && is_unanswered(peers_[r].socket, limit))
      lose(r, unanswered_text(limit));
}

void SocketMesh::note_failure(int rank, const std::string& why) {
  if (failure_) return;  // only the first says what went wrong
  failure_ = {rank, why};
  if (rank == rank_) on_own_failure_();
}

void SocketMesh::throw_if_failed() const {
  if (failure_) throw_error(failure_->why);
}

void SocketMesh::fail(const std::string& why) {
  auto lock = take_over();
  note_failure(rank_, str_cat("rank ", rank_, " failed: ", why));
  tell_failure();
  hand_over(std::move(lock));
}

void SocketMesh::check() {
  auto lock = take_over();
  progress(deadline_in(std::chrono::milliseconds(0)));
  const auto failure = failure_;
  hand_over(std::move(lock));
  if (failure) throw_error(failure->why);
}

bool SocketMesh::failed() {
  auto lock = take_over();
  const bool failed = failure_.has_value();
  hand_over(std::move(lock));
  return failed;
}

// To everybody who still listens. A rank passes on what it heard, so that all name the same
// culprit.
void SocketMesh::tell_failure() {
  if (std::exchange(failure_told_, true)) return;
  for (int r = 0; r < size_; ++r) {
    if (peers_[r].closed) continue;
    Outgoing frame{
        .header = {.kind = kFailure, .bytes = failure_->why.size(), .origin = failure_->rank},
        .owned = pool_.copy_of(as_bytes(failure_->why))};
    frame.body = frame.owned.room();
    enqueue(r, std::move(frame));
  }
}

bool SocketMesh::has_output() const {
  return std::any_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return !peer.closed && !peer.out.empty(); });
}

void SocketMesh::leave() {
  auto lock = take_over();
  try {
    if (std::uncaught_exceptions() > 0)
      note_failure(rank_, str_cat("rank ", rank_, " failed; its own output says why"));
    if (failure_) {
      tell_failure();
    } else {
      for (int r = 0; r < size_; ++r)
        if (!peers_[r].closed) enqueue(r, {.header = {.kind = kGoodbye}});
    }
    const bool failed = failure_.has_value();
    Deadline deadline = deadline_in(failed ? std::chrono::milliseconds(1000) : timeout_);
    while (has_output() && milliseconds_until(deadline) > 0) {
      progress(std::min(deadline, deadline_in(kLookAtLinks)));
      lose_unanswered();
    }
    for (Peer& peer : peers_)
      if (!peer.closed) ::shutdown(peer.socket.get(), SHUT_WR);
    // Closing with unread bytes resets the connection, and the failure might not get through: wait
    // a little until the others have closed theirs.
    deadline = deadline_in(std::chrono::milliseconds(failed ? 500 : 0));
    const auto open = [](const Peer& peer) { return !peer.closed; };
    do {
      progress(deadline);
    } while (std::any_of(peers_.begin(), peers_.end(), open) && milliseconds_until(deadline) > 0);
  } catch (const std::exception&) {
    // A destructor: there is nobody left to tell.
  }
  stop_ = true;
  lock.unlock();
  changed_.notify_one();
}

}  // namespace phx
