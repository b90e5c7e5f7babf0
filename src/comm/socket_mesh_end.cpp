// The end of a mesh, good or bad: who is lost, who is told, and how a rank leaves.
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "phalanx/comm/socket_mesh.h"

namespace phx {

std::string SocketMesh::silence_text() const {
  return str_cat("nothing came back from it for ", silence_limit(timeout_).count(),
                 " s, not even an acknowledgement: its machine or the network is down");
}

void SocketMesh::lose(int rank, const std::string& how) {
  Peer& peer = peers_[rank];
  peer.closed = true;
  if (!peer.left) note_failure(rank, str_cat("rank ", rank, peer.where, " died: ", how));
}

// A machine that lost its power or its network says nothing: its silence does.
void SocketMesh::lose_unanswered() {
  if (milliseconds_until(next_look_) > 0) return;
  next_look_ = deadline_in(kLookAtPeers);
  const std::chrono::seconds limit = silence_limit(timeout_);
  for (int r = 0; r < size_; ++r)
    if (!peers_[r].closed && is_unanswered(peers_[r].socket, limit)) lose(r, silence_text());
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
      progress(std::min(deadline, deadline_in(kLookAtPeers)));
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
