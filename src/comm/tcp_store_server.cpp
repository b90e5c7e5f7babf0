#include "phalanx/comm/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/comm/rank_list.h"

namespace phx {

using namespace store_wire;

namespace {

constexpr size_t kMostBytes = 64 << 20;  // of a request; the largest that ranks make is a few KiB

}  // namespace

TcpStoreServer::TcpStoreServer(const TcpStoreOptions& options)
    : options_(options),
      size_(options.size),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      arrivals_(std::in_place, listen_on(options.port, options.listen_on),
                options.key.with(store_wire::kPurpose), "the TCP store",
                // All ranks may come in one moment, from one address.
                Arrivals::Limits{.strangers = std::max<size_t>(256, size_t(options.size))}) {
  PHX_CHECK(wake_.is_open(), "eventfd failed: ", system_text(errno));
  if (!options.key_file.empty()) key_file_.emplace(options.key_file, options.key.secret());
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
  try {
    while (!stop_) serve_once();
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

// All who wait are told, and all others find the store closed.
void TcpStoreServer::give_up(const std::string& why) {
  try {
    key_file_.reset();
    arrivals_.reset();
    if (!table_.contains(kFailure)) put(kFailure, str_cat("rank 0's TCP store failed: ", why));
    answer_waiting();
  } catch (const std::exception&) {
    // There is no memory left to say it with.
  }
  clients_.clear();
  const std::lock_guard lock(mutex_);
  others_ = 0;
  changed_.notify_all();
}

void TcpStoreServer::serve_once() {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  Deadline next = deadline_in(std::chrono::hours(1));
  for (const Client& client : clients_) {
    entries.push_back({client.socket.get(), short(POLLIN | (client.out.empty() ? 0 : POLLOUT)), 0});
    if (!client.waits_for.empty()) next = std::min(next, client.until);
  }
  if (arrivals_) arrivals_->watch(entries, next);
  const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(next));
  PHX_CHECK(ready >= 0 || errno == EINTR, "poll failed: ", system_text(errno));
  size_t at = 1;
  for (Client& client : clients_) {
    const short events = ready > 0 ? entries[at++].revents : 0;
    if (events & (POLLIN | POLLHUP | POLLERR)) read(client);
    if (!client.closed && !client.out.empty()) write(client);
  }
  if (arrivals_)
    for (Arrivals::Arrival& arrival : arrivals_->look()) take_in(std::move(arrival));
  if (int(arrived_.size()) == size_) {  // nobody else has business here
    key_file_.reset();
    arrivals_.reset();
  }
  answer_waiting();
  clients_.remove_if([](const Client& client) { return client.closed; });
}

void TcpStoreServer::take_in(Arrivals::Arrival arrival) {
  watch_over(arrival.socket, silence_limit(options_.timeout));
  Client& client = clients_.emplace_back();
  client.socket = std::move(arrival.socket);
  client.where = arrival.address;
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
    if (total > kMostBytes) return drop(client);
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
  if (value.size() < sizeof who) return drop(client);
  std::memcpy(who, value.data(), sizeof who);
  const std::string machine = value.substr(sizeof who);
  client.where = options_.one_machine ? "" : str_cat(" on ", machine, " (", client.where, ")");
  if (who[1] != size_)
    return reply(client, refused,
                 str_cat("it serves a world of ", size_, " ranks, and this is rank ", who[0],
                         " of ", who[1]));
  if (who[0] < 0 || who[0] >= size_)
    return reply(client, refused,
                 str_cat("rank ", who[0], " is out of range: its ranks are 0 to ", size_ - 1));
  if (!arrived_.insert(who[0]).second)
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
    put(kFailure, str_cat("rank ", client.rank, client.where, " died: its connection closed"));
  if (client.rank != 0) {
    const std::lock_guard lock(mutex_);
    --others_;
    changed_.notify_all();
  }
}

std::string TcpStoreServer::missing() const {
  std::vector<int> ranks, machines;
  for (int r = 0; r < size_; ++r) {
    if (arrived_.contains(r)) continue;
    ranks.push_back(r);
    if (options_.ranks_a_machine == 0) continue;
    const int machine = r / options_.ranks_a_machine;
    if (machines.empty() || machines.back() != machine) machines.push_back(machine);
  }
  const std::string names =
      machines.empty() || options_.one_machine ? "" : str_cat(" (node ", rank_list(machines), ")");
  return str_cat(rank_list(ranks), " of ", size_, names);
}

}  // namespace phx
