// Rank 0's side of the TCP store: one thread that sleeps in poll().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/socket.h"

namespace phx {

// What goes over the wire, in the machine's byte order (a cluster has one):
//   request  kind, key bytes, value bytes, timeout in ms; then key, then value
//   reply    status, value bytes; then value
namespace store_wire {
enum Request : uint8_t { hello, set, get, find, fail, goodbye };
enum Status : uint8_t { ok, none, timed_out, failed, refused };
struct RequestHeader {
  uint32_t magic = 0x50485831;
  uint8_t kind = 0;
  uint8_t unused[3]{};
  uint32_t key_bytes = 0, value_bytes = 0;
  int64_t timeout_ms = 0;
};
struct ReplyHeader {
  uint32_t status = 0, value_bytes = 0;
};
inline const std::string kFailure = "failure";  // keys that the server itself sets
inline const std::string kArrived = "arrived";  // a time-out for it answers who is missing
}  // namespace store_wire

class TcpStoreServer {
 public:
  TcpStoreServer(int port, int size);
  ~TcpStoreServer();
  // Until all ranks but rank 0 have left, or the deadline.
  void wait_for_goodbyes(Deadline deadline);

 private:
  struct Client {
    FileHandle socket;
    int rank = -1;
    bool left = false;  // said goodbye
    bool closed = false;
    std::string in, out;
    std::string waits_for;  // a key; empty: for nothing
    Deadline until;
  };

  void serve();
  void read(Client& client);
  void write(Client& client);
  void handle(Client& client, const store_wire::RequestHeader& header, std::string key,
              std::string value);
  void hello(Client& client, const std::string& value);
  void put(const std::string& key, const std::string& value);
  void answer_waiting();
  void reply(Client& client, store_wire::Status status, const std::string& value);
  void drop(Client& client);
  std::string missing() const;

  const int size_;
  Listener listener_;
  FileHandle wake_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  std::list<Client> clients_;
  std::map<std::string, std::string> table_;
  std::set<int> arrived_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int others_ = 0;  // connections of other ranks that are still there
};

}  // namespace phx
