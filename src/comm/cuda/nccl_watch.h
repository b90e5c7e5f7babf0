// What all groups of an NCCL world share: the library, the store, and a thread that watches over
// what was enqueued.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "phalanx/comm/call_gate.h"
#include "phalanx/comm/cuda/nccl_library.h"
#include "phalanx/comm/ledger.h"
#include "phalanx/comm/tcp_store.h"
#include "phalanx/comm/world.h"

namespace phx::cuda {

class NcclWatch {
 public:
  // Throws where `settings` are not those of all ranks.
  NcclWatch(const TcpStoreOptions& store, int gpu, std::shared_ptr<RankLedgers> ledgers,
            const Settings& settings);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // A group's communicator while it is being watched. All guarded by the mutex.
  struct Group {
    ncclComm_t comm = nullptr;
    std::shared_ptr<CallGate> gate = std::make_shared<CallGate>();  // before calls on `comm`
    std::string name;
    uint64_t id = 0;
    std::vector<int> members;
    cudaStream_t stream = nullptr;        // of the latest call
    uint64_t enqueued = 0, recorded = 0;  // calls so far; those before `mark`
    cudaEvent_t mark = nullptr;
    bool marked = false;  // the stream has not been seen to pass `mark`
    Deadline deadline;    // by which it should
  };
  using Handle = std::list<Group>::iterator;

  // Collective over the members: makes the communicator.
  Handle join(const GroupInfo& info);
  enum class Leave { well, in_error };  // well: NCCL flushes what is under way
  void leave(Handle group, Leave how);

  // Around one call of NCCL: while it lives, the watch does not take the communicator away, unless
  // the call itself gets stuck inside of NCCL. Throws if a rank failed: then it is gone.
  class Call {
   public:
    Call(NcclWatch& watch, Handle group);
    ~Call() { gate_->leave(); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ncclComm_t comm() const { return comm_; }

   private:
    std::shared_ptr<CallGate> gate_;
    ncclComm_t comm_ = nullptr;
  };
  void enqueued(Handle group, cudaStream_t stream);

  // Throws if `result` is an error; if some rank failed, that is the reason given.
  void check(ncclResult_t result, const char* call);
  void throw_if_failed();
  void fail(const std::string& sentence);  // tells the other ranks, and ends what is under way
  bool failed();

  const NcclLibrary& nccl() const { return nccl_; }
  std::chrono::milliseconds timeout() const { return options_.timeout; }

 private:
  std::string gather_and_publish_id(const GroupInfo& info);
  void make(Handle group, const GroupInfo& info, const ncclUniqueId& id);
  void run();
  std::optional<std::string> look_at(Group& group);
  std::string explain(const Group& group) const;
  void give_up(const std::string& sentence);

  TcpStoreOptions options_;
  int gpu_;
  std::shared_ptr<RankLedgers> ledgers_;
  NcclLibrary nccl_;
  TcpStore store_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Group> groups_;
  std::optional<std::string> failure_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace phx::cuda
