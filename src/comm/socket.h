// TCP, as little as this room needs: listen, connect with patience, whole messages with a deadline.
// Errors name the other side and what the system said.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "base/file.h"

namespace phx {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline deadline_in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
int milliseconds_until(Deadline deadline);  // for poll(); 0 when it has passed

struct Listener {
  FileHandle socket;
  int port = 0;
};
// On all addresses of this machine; port 0 takes any that is free. Throws if the port is taken.
Listener listen_on(int port);
// Tries again until the deadline: the other side may not be up yet. Throws Stalled if it never is.
FileHandle connect_to(const std::string& host, int port, Deadline deadline);
// The next connection, or a closed handle after the deadline.
FileHandle accept_from(const Listener& listener, Deadline deadline);

// Whole messages on a connection. Throw Stalled after the deadline, Error if the connection ends;
// `who` is for the error.
void send_all(const FileHandle& socket, std::span<const std::byte> bytes, Deadline deadline,
              const std::string& who);
void receive_all(const FileHandle& socket, std::span<std::byte> room, Deadline deadline,
                 const std::string& who);

std::string own_address(const FileHandle& socket);  // of this end of a connection: "10.0.0.3"
void set_nonblocking(const FileHandle& socket);
void set_no_delay(const FileHandle& socket);  // small messages leave at once
std::string system_text(int error_number);    // "Connection refused"

}  // namespace phx
