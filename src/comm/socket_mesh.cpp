#include "phalanx/comm/socket_mesh.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "phalanx/comm/mesh_connections.h"

namespace phx {

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
    progress(std::min(deadline, deadline_in(kLookAtPeers)));
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

}  // namespace phx
