// TCP, as little as this room needs: listen, connect with patience, whole messages with a deadline.
// Errors name the other side and what the system said.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"

namespace phx {

// The other side of a connection has closed it, or is gone.
class ConnectionEnded : public Error {
 public:
  using Error::Error;
};

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline deadline_in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
int milliseconds_until(Deadline deadline);  // for poll(); 0 when it has passed

inline const std::string kLoopback = "127.0.0.1";
using Hosts = std::vector<std::string>;  // names or addresses of one machine

struct Listener {
  std::vector<FileHandle> sockets;  // one for each address
  int port = 0;
};
// On these addresses of this machine, or on all if there are none; port 0 takes any that is free.
// Throws if the port is taken.
Listener listen_on(int port, const Hosts& addresses = {kLoopback});

// One try, at every address of the hosts. Without a socket, `why` says what the last one answered.
struct Reached {
  FileHandle socket;
  std::string why;
  bool unknown_name = false;  // the host has no address at all
};
Reached try_to_reach(const Hosts& hosts, int port, Deadline deadline);
// Tries again until the deadline: the other side may not be up yet. Throws Stalled if it never is.
FileHandle connect_to(const std::string& host, int port, Deadline deadline);
// The next connection that waits at one of the listener's sockets, or a closed handle and errno.
FileHandle accept_from(const FileHandle& listening);

// Whole messages on a connection. Throw Stalled after the deadline, ConnectionEnded if it ends;
// `who` is for the error.
void send_all(const FileHandle& socket, std::span<const std::byte> bytes, Deadline deadline,
              const std::string& who);
void receive_all(const FileHandle& socket, std::span<std::byte> room, Deadline deadline,
                 const std::string& who);

std::string own_address(const FileHandle& socket);        // of this end of a connection: "10.0.0.3"
std::string peer_address(const FileHandle& socket);       // of the other end
bool is_loopback(const std::string& address);             // "127.0.1.1", "::1", "localhost"
std::string endpoint(const std::string& host, int port);  // "node7:29500", "[fd00::1]:29500"
std::string endpoint(const Hosts& hosts, int port);       // of the first

// The system asks the other side now and then whether it is still there. A connection on which
// nothing came back for `limit` ends, if nothing is on its way; `is_unanswered` tells the same of
// one with bytes on their way, which the system would go on sending for a quarter of an hour.
void watch_over(const FileHandle& socket, std::chrono::seconds limit);
bool is_unanswered(const FileHandle& socket, std::chrono::seconds limit);

void set_nonblocking(const FileHandle& socket);
void set_no_delay(const FileHandle& socket);  // small messages leave at once
std::string system_text(int error_number);    // "Connection refused"

}  // namespace phx
