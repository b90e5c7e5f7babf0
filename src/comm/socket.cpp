#include "phalanx/comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "phalanx/comm/byte_transport.h"

namespace phx {

namespace {

void enable(const FileHandle& socket, int level, int option) {
  const int on = 1;
  (void)::setsockopt(socket.get(), level, option, &on, sizeof on);
}

// Waits for `events`; false after the deadline.
bool wait_for(const FileHandle& socket, short events, Deadline deadline) {
  pollfd entry{.fd = socket.get(), .events = events, .revents = 0};
  while (true) {
    const int ready = ::poll(&entry, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) throw_error(str_cat("poll failed: ", system_text(errno)));
  }
}

FileHandle listening_socket(const addrinfo& at, int port) {
  FileHandle handle(::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!handle.is_open()) return {};
  enable(handle, SOL_SOCKET, SO_REUSEADDR);
  sockaddr_storage address{};
  std::memcpy(&address, at.ai_addr, at.ai_addrlen);
  if (at.ai_family == AF_INET6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    const bool everywhere = IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr);
    const int only = everywhere ? 0 : 1;  // IPv4 comes in here as well
    (void)::setsockopt(handle.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    six.sin6_port = htons(uint16_t(port));
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(uint16_t(port));
  }
  if (::bind(handle.get(), reinterpret_cast<sockaddr*>(&address), at.ai_addrlen) != 0 ||
      ::listen(handle.get(), 1024) != 0) {
    const int error = errno;
    handle = {};
    errno = error;
  }
  return handle;
}

int port_of(const FileHandle& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  PHX_CHECK(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
            "getsockname failed: ", system_text(errno));
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Addresses resolve(const std::string& host, int port, std::string& why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) why = str_cat("the address ", host, " is not known: ", ::gai_strerror(status));
  return {status == 0 ? found : nullptr, ::freeaddrinfo};
}

// One try; a closed handle and errno if it fails.
FileHandle try_connect(const addrinfo& to, Deadline deadline) {
  FileHandle handle(::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!handle.is_open()) return {};
  if (::connect(handle.get(), to.ai_addr, to.ai_addrlen) != 0) {
    int error = errno;
    if (error == EINPROGRESS) {
      // A machine that does not answer at all is given up after a second, and tried again.
      const bool answered =
          wait_for(handle, POLLOUT, std::min(deadline, deadline_in(std::chrono::seconds(1))));
      socklen_t length = sizeof error;
      if (!answered)
        error = ETIMEDOUT;
      else
        (void)::getsockopt(handle.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error != 0) {
      handle = {};
      errno = error;
      return {};
    }
  }
  set_no_delay(handle);
  return handle;
}

}  // namespace

std::string system_text(int error_number) {
  return std::generic_category().message(error_number);  // strerror is not for threads
}

int milliseconds_until(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return int(std::clamp<int64_t>(left.count(), 0, INT_MAX));
}

Listener listen_on(int port, const Hosts& addresses) {
  Listener listener{.sockets = {}, .port = port};
  for (const std::string& text : addresses.empty() ? Hosts{"::", "0.0.0.0"} : addresses) {
    std::string why;
    const Addresses at = resolve(text, 0, why);
    PHX_CHECK(at != nullptr, why);
    FileHandle handle = listening_socket(*at, listener.port);
    const int error = errno;
    // A machine without IPv6 listens on 0.0.0.0; one with it hears IPv4 on :: too.
    if (!handle.is_open() && addresses.empty() && text == "::" && error != EADDRINUSE &&
        error != EACCES)
      continue;
    PHX_CHECK(handle.is_open(), "cannot listen on port ", listener.port,
              addresses.empty() ? "" : str_cat(" of ", text), ": ", system_text(error),
              error == EADDRINUSE ? "\n  hint: another run may use it; choose a free one with "
                                    "--master-port, MASTER_PORT or PHX_STORE_PORT"
                                  : "");
    if (listener.port == 0) listener.port = port_of(handle);
    listener.sockets.push_back(std::move(handle));
    if (addresses.empty()) break;
  }
  return listener;
}

Reached try_to_reach(const Hosts& hosts, int port, Deadline deadline) {
  Reached reached{.socket = {}, .why = "it has no address", .unknown_name = true};
  for (const std::string& host : hosts) {
    const Addresses addresses = resolve(host, port, reached.why);
    for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
      reached.unknown_name = false;
      reached.socket = try_connect(*to, deadline);
      if (reached.socket.is_open()) return reached;
      reached.why = str_cat(endpoint(host, port), " does not answer: ", system_text(errno));
    }
  }
  return reached;
}

FileHandle connect_to(const std::string& host, int port, Deadline deadline) {
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    Reached reached = try_to_reach({host}, port, deadline);
    if (reached.socket.is_open()) return std::move(reached.socket);
    if (milliseconds_until(deadline) == 0) throw Stalled(reached.why);
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(
        pause, deadline - std::chrono::steady_clock::now()));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

FileHandle accept_from(const FileHandle& listening) {
  FileHandle handle(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (handle.is_open()) set_no_delay(handle);
  return handle;
}

void send_all(const FileHandle& socket, std::span<const std::byte> bytes, Deadline deadline,
              const std::string& who) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(size_t(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT, deadline)) throw Stalled(str_cat(who, " does not read"));
    } else if (errno != EINTR) {
      throw ConnectionEnded(str_cat("the connection to ", who, " ended: ", system_text(errno)));
    }
  }
}

void receive_all(const FileHandle& socket, std::span<std::byte> room, Deadline deadline,
                 const std::string& who) {
  while (!room.empty()) {
    const ssize_t got = ::recv(socket.get(), room.data(), room.size(), MSG_DONTWAIT);
    if (got > 0) {
      room = room.subspan(size_t(got));
    } else if (got == 0) {
      throw ConnectionEnded(str_cat("the connection to ", who, " ended"));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLIN, deadline)) throw Stalled(str_cat(who, " does not answer"));
    } else if (errno != EINTR) {
      throw ConnectionEnded(str_cat("the connection to ", who, " ended: ", system_text(errno)));
    }
  }
}

namespace {

using NameOf = int (*)(int, sockaddr*, socklen_t*);
std::string address_text(const FileHandle& socket, NameOf name_of) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST];
  PHX_CHECK(name_of(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text,
                              nullptr, 0, NI_NUMERICHOST) == 0,
            "the address of a connection cannot be read: ", system_text(errno));
  const std::string name = text;
  const std::string mapped = "::ffff:";  // IPv4 through a socket for both
  return name.starts_with(mapped) ? name.substr(mapped.size()) : name;
}

}  // namespace

std::string own_address(const FileHandle& socket) { return address_text(socket, ::getsockname); }
std::string peer_address(const FileHandle& socket) { return address_text(socket, ::getpeername); }

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1" || address == "localhost";
}

std::string endpoint(const std::string& host, int port) {
  const bool six = host.find(':') != std::string::npos;
  return six ? str_cat("[", host, "]:", port) : str_cat(host, ":", port);
}
std::string endpoint(const Hosts& hosts, int port) {
  return endpoint(hosts.empty() ? "?" : hosts.front(), port);
}

void watch_over(const FileHandle& socket, std::chrono::seconds limit) {
  enable(socket, SOL_SOCKET, SO_KEEPALIVE);
  const auto set = [&](int option, int64_t value) {
    const int number = int(std::max<int64_t>(value, 1));
    (void)::setsockopt(socket.get(), IPPROTO_TCP, option, &number, sizeof number);
  };
  const int64_t idle = std::max<int64_t>(1, limit.count() / 4);   // before the first question
  const int64_t pause = std::max<int64_t>(1, limit.count() / 8);  // between two
  set(TCP_KEEPIDLE, idle);
  set(TCP_KEEPINTVL, pause);
  set(TCP_KEEPCNT, (limit.count() - idle + pause - 1) / pause);  // that stay without an answer
}

bool is_unanswered(const FileHandle& socket, std::chrono::seconds limit) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // A peer that lives answers a question at the latest after a quarter of the limit. One that only
  // does not read answers too: then nothing is unacknowledged, and no question is open.
  const bool open = info.tcpi_unacked > 0 || info.tcpi_probes > 1;
  return open && std::chrono::milliseconds(info.tcpi_last_ack_recv) >= limit;
}

void set_nonblocking(const FileHandle& socket) {
  (void)::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

void set_no_delay(const FileHandle& socket) { enable(socket, IPPROTO_TCP, TCP_NODELAY); }

}  // namespace phx
