#include "comm/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace phx {

using namespace store_wire;

TcpStoreServer::TcpStoreServer(int port, int size)
    : size_(size), listener_(listen_on(port)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PHX_CHECK(wake_.is_open(), "eventfd failed: ", system_text(errno));
  set_nonblocking(listener_.socket);
  thread_ = std::thread([this] { serve(); });
}

TcpStoreServer::~TcpStoreServer() {
  stop_ = true;
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void TcpStoreServer::wait_for_goodbyes(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return others_ == 0; });
}

void TcpStoreServer::serve() {
  while (!stop_) {
    std::vector<pollfd> entries = {{listener_.socket.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    Deadline next = deadline_in(std::chrono::hours(1));
    for (const Client& client : clients_) {
      entries.push_back(
          {client.socket.get(), short(POLLIN | (client.out.empty() ? 0 : POLLOUT)), 0});
      if (!client.waits_for.empty()) next = std::min(next, client.until);
    }
    if (::poll(entries.data(), entries.size(), milliseconds_until(next)) < 0 && errno != EINTR)
      return;  // cannot happen with valid descriptors; the clients see a closed store
    size_t at = 2;
    for (Client& client : clients_) {
      const short ready = entries[at++].revents;
      if (ready & (POLLIN | POLLHUP | POLLERR)) read(client);
      if (!client.closed && !client.out.empty()) write(client);
    }
    if (entries[0].revents & POLLIN) {
      FileHandle socket(
          ::accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.is_open()) {
        set_no_delay(socket);
        clients_.emplace_back().socket = std::move(socket);
      }
    }
    answer_waiting();
    clients_.remove_if([](const Client& client) { return client.closed; });
  }
}

void TcpStoreServer::read(Client& client) {
  char buffer[4096];
  while (true) {
    const ssize_t got = ::recv(client.socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got > 0) {
      client.in.append(buffer, size_t(got));
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (got < 0 && errno == EAGAIN) {
      break;
    } else {
      drop(client);
      return;
    }
  }
  RequestHeader header;
  while (!client.closed && client.in.size() >= sizeof header) {
    std::memcpy(&header, client.in.data(), sizeof header);
    if (header.magic != RequestHeader{}.magic) {  // somebody else's client
      drop(client);
      return;
    }
    const size_t total = sizeof header + header.key_bytes + header.value_bytes;
    if (client.in.size() < total) break;
    std::string key = client.in.substr(sizeof header, header.key_bytes);
    std::string value = client.in.substr(sizeof header + header.key_bytes, header.value_bytes);
    client.in.erase(0, total);
    handle(client, header, std::move(key), std::move(value));
  }
}

void TcpStoreServer::write(Client& client) {
  const ssize_t sent = ::send(client.socket.get(), client.out.data(), client.out.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) client.out.erase(0, size_t(sent));
  if (sent < 0 && errno != EAGAIN && errno != EINTR) drop(client);
}

void TcpStoreServer::reply(Client& client, Status status, const std::string& value) {
  const ReplyHeader header{.status = status, .value_bytes = uint32_t(value.size())};
  client.out.append(reinterpret_cast<const char*>(&header), sizeof header);
  client.out += value;
  write(client);
}

void TcpStoreServer::handle(Client& client, const RequestHeader& header, std::string key,
                            std::string value) {
  switch (header.kind) {
    case store_wire::hello:
      return hello(client, value);
    case store_wire::set:
      put(key, value);
      return reply(client, ok, "");
    case store_wire::fail:
      if (!table_.contains(kFailure)) put(kFailure, value);
      return reply(client, ok, "");
    case store_wire::get:
      client.waits_for = key;
      client.until = deadline_in(std::chrono::milliseconds(header.timeout_ms));
      return answer_waiting();
    case store_wire::find: {
      const auto found = table_.find(key);
      return found == table_.end() ? reply(client, none, "") : reply(client, ok, found->second);
    }
    case store_wire::goodbye:
      client.left = true;
      return reply(client, ok, "");
    default:
      drop(client);
  }
}

void TcpStoreServer::hello(Client& client, const std::string& value) {
  int32_t who[2];  // rank, size
  if (value.size() != sizeof who) return drop(client);
  std::memcpy(who, value.data(), sizeof who);
  if (who[1] != size_)
    return reply(client, refused,
                 str_cat("it serves a world of ", size_, " ranks, and this is rank ", who[0],
                         " of ", who[1]));
  if (who[0] < 0 || who[0] >= size_ || !arrived_.insert(who[0]).second)
    return reply(client, refused, str_cat("a rank ", who[0], " is there already"));
  client.rank = who[0];
  if (client.rank != 0) {
    const std::lock_guard lock(mutex_);
    ++others_;
  }
  reply(client, ok, "");
  if (int(arrived_.size()) == size_) put(kArrived, "");
}

void TcpStoreServer::put(const std::string& key, const std::string& value) { table_[key] = value; }

// A failure answers everybody who waits.
void TcpStoreServer::answer_waiting() {
  const auto failure = table_.find(kFailure);
  for (Client& client : clients_) {
    if (client.closed || client.waits_for.empty()) continue;
    const auto found = table_.find(client.waits_for);
    const bool late = std::chrono::steady_clock::now() >= client.until;
    if (found == table_.end() && failure == table_.end() && !late) continue;
    const std::string waited_for = std::exchange(client.waits_for, "");
    if (found != table_.end())
      reply(client, ok, found->second);
    else if (failure != table_.end())
      reply(client, failed, failure->second);
    else
      reply(client, timed_out, waited_for == kArrived ? missing() : "");
  }
}

void TcpStoreServer::drop(Client& client) {
  if (client.closed) return;
  client.closed = true;
  client.out.clear();
  if (client.rank < 0) return;
  if (!client.left && !table_.contains(kFailure))
    put(kFailure, str_cat("rank ", client.rank, " died: its connection closed"));
  if (client.rank != 0) {
    const std::lock_guard lock(mutex_);
    --others_;
    changed_.notify_all();
  }
}

std::string TcpStoreServer::missing() const {
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r)
    if (!arrived_.contains(r)) ranks.push_back(r);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < 20; ++i)
    text += str_cat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  if (ranks.size() > 20) text += str_cat(" and ", ranks.size() - 20, " more");
  return text;
}

}  // namespace phx
