// A small table of names and values that rank 0 keeps and all ranks reach over TCP: how they find
// each other, and how they hear that one of them died. Safe to use from several threads.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "phalanx/comm/handshake.h"
#include "phalanx/comm/job_key.h"
#include "phalanx/comm/socket.h"

namespace phx {

class TcpStoreServer;
class WaitReport;

struct TcpStoreOptions {
  Hosts hosts = {kLoopback};  // of rank 0, for this rank
  int port = 0;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  JobKey key;
  Path key_file = {};  // if there is one: rank 0 leaves its key there, and the others read it
  Hosts listen_on = {kLoopback};  // rank 0: its own addresses; none: all of them
  // For messages.
  bool one_machine = true;
  int ranks_a_machine = 0;                      // if they are numbered machine by machine
  std::chrono::milliseconds report_every = {};  // while it waits for others; 0: not at all
};

// How long a connection may stay without an answer before its other end counts as gone.
std::chrono::seconds silence_limit(std::chrono::milliseconds timeout);

class TcpStore {
 public:
  // Rank 0 serves. Returns when all ranks have arrived; after the time-out the error on every rank
  // that is there names those that are not.
  explicit TcpStore(const TcpStoreOptions& options);
  // Leaves in good order. Rank 0 stays until the others have left, unless `abandon` was called.
  ~TcpStore();
  TcpStore(const TcpStore&) = delete;
  TcpStore& operator=(const TcpStore&) = delete;

  void set(const std::string& key, const std::string& value);
  // Waits until somebody sets it. Throws after the time-out, and when a rank has failed.
  std::string get(const std::string& key);
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  std::optional<std::string> find(const std::string& key);  // what is there now

  // "rank 3 failed: ..." or "rank 3 died: ..."; the first to be told stays. A rank that leaves
  // without a goodbye has died. When rank 0 is gone, so is the store: that is a failure as well.
  void fail(const std::string& why);
  std::optional<std::string> failure();
  void abandon() { abandoned_ = true; }
  // What the destructor does where no exception is on its way; nothing is asked for afterwards.
  void leave();

  // By which rank 0's machine reaches this one, and this one rank 0's. Both are loopback addresses
  // if that is the same machine.
  std::string own_address() const { return phx::own_address(socket_); }
  std::string address_of_rank_zero() const { return peer_address(socket_); }
  const JobKey& key() const { return options_.key; }
  Deadline deadline() const { return deadline_; }  // by which this rank wants all to be connected

 private:
  struct Reply {
    uint8_t status;
    std::string value;
  };
  Reply ask(uint8_t what, const std::string& key, const std::string& value,
            std::chrono::milliseconds timeout);
  void arrive(WaitReport& report);
  FileHandle call_rank_zero(const OnWait& on_wait);
  FileHandle call_with_machine_key(const OnWait& on_wait);
  void wait_for_all(WaitReport& report);

  TcpStoreOptions options_;
  const Deadline deadline_;
  std::unique_ptr<TcpStoreServer> server_;  // rank 0 only
  std::mutex mutex_;
  FileHandle socket_;
  std::string broken_;  // why there is no connection any more
  std::atomic<bool> abandoned_ = false;
  bool left_ = false;
};

}  // namespace phx
