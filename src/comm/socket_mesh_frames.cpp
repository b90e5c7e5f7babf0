// The bytes of a mesh: frames that are written and read as far as the sockets take and give them.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "phalanx/comm/socket_mesh.h"

namespace phx {
namespace {

constexpr size_t kMostAtOnce = 8 << 20;  // of one connection, before the others get their turn

std::string connection_closed(int error_number) {
  return str_cat("its connection closed",
                 error_number == 0 ? "" : str_cat(" (", system_text(error_number), ")"));
}

}  // namespace

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
        lose(rank, silence_text());
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

}  // namespace phx
