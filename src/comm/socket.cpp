#include "comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <system_error>
#include <thread>

#include "comm/byte_transport.h"

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

FileHandle listening_socket(int family, int port) {
  FileHandle handle(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!handle.is_open()) return {};
  enable(handle, SOL_SOCKET, SO_REUSEADDR);
  int status;
  if (family == AF_INET6) {
    const int off = 0;  // IPv4 comes in here as well
    (void)::setsockopt(handle.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    address.sin6_port = htons(uint16_t(port));
    status = ::bind(handle.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  } else {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(uint16_t(port));
    status = ::bind(handle.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  }
  if (status != 0 || ::listen(handle.get(), 1024) != 0) {
    const int error = errno;
    handle = {};
    errno = error;
  }
  return handle;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
Addresses resolve(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int status = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  PHX_CHECK(status == 0, "the address ", host, " is not known: ", ::gai_strerror(status));
  return {found, ::freeaddrinfo};
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

Listener listen_on(int port) {
  FileHandle handle = listening_socket(AF_INET6, port);
  if (!handle.is_open() && errno != EADDRINUSE && errno != EACCES)
    handle = listening_socket(AF_INET, port);  // a machine without IPv6
  PHX_CHECK(handle.is_open(), "cannot listen on port ", port, ": ", system_text(errno),
            errno == EADDRINUSE ? "\n  hint: another run may use it; set PHX_STORE_PORT or "
                                  "MASTER_PORT to a free one"
                                : "");
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  PHX_CHECK(::getsockname(handle.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
            "getsockname failed: ", system_text(errno));
  const uint16_t at = address.ss_family == AF_INET6
                          ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                          : reinterpret_cast<sockaddr_in&>(address).sin_port;
  return {std::move(handle), ntohs(at)};
}

FileHandle connect_to(const std::string& host, int port, Deadline deadline) {
  const Addresses addresses = resolve(host, port);
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    for (const addrinfo* to = addresses.get(); to != nullptr; to = to->ai_next) {
      FileHandle handle = try_connect(*to, deadline);
      if (handle.is_open()) return handle;
    }
    const int error = errno;
    if (milliseconds_until(deadline) == 0)
      throw Stalled(str_cat(host, ":", port, " does not answer: ", system_text(error)));
    std::this_thread::sleep_for(std::min<std::chrono::steady_clock::duration>(
        pause, deadline - std::chrono::steady_clock::now()));
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

FileHandle accept_from(const Listener& listener, Deadline deadline) {
  while (wait_for(listener.socket, POLLIN, deadline)) {
    FileHandle handle(
        ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (handle.is_open()) {
      set_no_delay(handle);
      return handle;
    }
    // The caller may have gone again meanwhile; anything else is ours.
    PHX_CHECK(errno == EINTR || errno == ECONNABORTED || errno == EAGAIN, "accept on port ",
              listener.port, " failed: ", system_text(errno));
  }
  return {};
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
      throw_error(str_cat("the connection to ", who, " ended: ", system_text(errno)));
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
      throw_error(str_cat("the connection to ", who, " ended"));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLIN, deadline)) throw Stalled(str_cat(who, " does not answer"));
    } else if (errno != EINTR) {
      throw_error(str_cat("the connection to ", who, " ended: ", system_text(errno)));
    }
  }
}

std::string own_address(const FileHandle& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char text[NI_MAXHOST];
  PHX_CHECK(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text, sizeof text,
                              nullptr, 0, NI_NUMERICHOST) == 0,
            "the address of a connection cannot be read: ", system_text(errno));
  const std::string name = text;
  const std::string mapped = "::ffff:";  // IPv4 through a socket for both
  return name.starts_with(mapped) ? name.substr(mapped.size()) : name;
}

void set_nonblocking(const FileHandle& socket) {
  (void)::fcntl(socket.get(), F_SETFL, ::fcntl(socket.get(), F_GETFL) | O_NONBLOCK);
}

void set_no_delay(const FileHandle& socket) { enable(socket, IPPROTO_TCP, TCP_NODELAY); }

}  // namespace phx
