// Rank 0's side of the TCP store: one thread that sleeps in poll(). It listens until all ranks are
// there; who does not know the job's key is never heard (comm/arrivals.h).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "phalanx/comm/arrivals.h"
#include "phalanx/comm/machine_key.h"
#include "phalanx/comm/tcp_store.h"

namespace phx {

// What goes over the wire, in the machine's byte order (a cluster has one):
//   request  kind, key bytes, value bytes, timeout in ms; then key, then value
//   hello    its value is rank and size (i32 each), then the name of the machine
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
inline constexpr const char* kPurpose = "store";  // of the key that opens it
inline const std::string kFailure = "failure";    // keys that the server itself sets
inline const std::string kArrived = "arrived";    // a time-out for it answers who is missing
}  // namespace store_wire

class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreOptions& options);
  ~TcpStoreServer();
  // Until all ranks but rank 0 have left, or the deadline.
  void wait_for_goodbyes(Deadline deadline);

 private:
  struct Client {
    FileHandle socket;
    int rank = -1;
    std::string where;  // it runs: " on node7 (10.0.0.7)"; nothing if all are on one machine
    bool left = false;  // said goodbye
    bool closed = false;
    std::string in, out;
    std::string waits_for;  // a key; empty: for nothing
    Deadline until;
  };

  void serve();
  void serve_once();
  void give_up(const std::string& why);
  void take_in(Arrivals::Arrival arrival);
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

  const TcpStoreOptions options_;
  const int size_;
  FileHandle wake_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  std::optional<Arrivals> arrivals_;        // until all are there
  std::optional<MachineKeyFile> key_file_;  // as long: another run may have the port then
  std::list<Client> clients_;
  std::map<std::string, std::string> table_;
  std::set<int> arrived_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int others_ = 0;  // connections of other ranks that are still there
};

}  // namespace phx
