// A group of ranks and the collectives among them. Every rank of a group makes the same calls in
// the same order. A call enqueues on `stream` behind what is there already, and owns its tensors
// until `stream` has run it; on cpu and meta every stream runs inline, so the call does the work.
// Calls of one group run one after the other, even on different streams: what must not wait for
// each other belongs into groups of its own.
//
// Reductions have one order: contributions are added in rank order, in acc_dtype, and rounded once
// (whole numbers in their own type). The backends that share this code (threads, sockets, mpi)
// therefore agree to the byte; they only move bytes. NCCL has its own order.
//
// Before a collective is enqueued it is written into the rank's ledger (comm/ledger.h), with the
// place in the source that called it: a stall can then be explained.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "phalanx/comm/ledger.h"
#include "phalanx/core/tensor.h"

namespace phx {

enum class ReduceOp : uint8_t { sum, max };  // max: NaN if any rank has a NaN there (not on NCCL)

// One message of a group of sends and receives that proceed together.
struct Message {
  enum class Kind : uint8_t { send, receive } kind = Kind::send;
  Tensor tensor;
  int peer = 0;  // rank within the group
};

// What a backend is told when a group is made.
struct GroupInfo {
  std::string name;
  std::vector<int> members;  // world ranks, in group order
  int rank = 0;              // this rank's place among them
  uint64_t id = 0;           // the same on every member, different for every group of the world
  std::shared_ptr<RankLedgers> ledgers;  // none: calls are not written down
};

class Communicator {
 public:
  using Site = std::source_location;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return info_.rank; }  // within this group: 0 .. size() - 1
  int size() const { return int(info_.members.size()); }
  const std::string& name() const { return info_.name; }             // "tp", for messages
  const std::vector<int>& members() const { return info_.members; }  // world ranks, in group order
  // Whether calls are only enqueued (NCCL). If not, they have been done when they return, and a
  // receive that is posted before its time would wait for ever.
  virtual bool asynchronous() const { return false; }
  // Collective: every two ranks connect now for what they will send each other, where a first
  // message would have to wait for that on the host.
  virtual void connect_pairs() {}

  // x becomes the element-wise sum (or maximum) over all ranks.
  void all_reduce(const Tensor& x, Stream stream, ReduceOp op = ReduceOp::sum,
                  Site site = Site::current());
  // shard [n, ..] -> full [size() * n, ..]; rank r's rows land at r * n. `shard` may be rank()'s
  // rows of `full`.
  void all_gather(const Tensor& shard, const Tensor& full, Stream stream,
                  Site site = Site::current());
  // full [size() * n, ..] -> shard [n, ..], the sum of everybody's rows rank() * n .. . `shard` may
  // be those rows of `full`.
  void reduce_scatter(const Tensor& full, const Tensor& shard, Stream stream,
                      Site site = Site::current());
  void broadcast(const Tensor& x, int root, Stream stream, Site site = Site::current());
  // in, out [size() * n, ..]: block r of `in` goes to rank r, block r of `out` came from rank r.
  void all_to_all(const Tensor& in, const Tensor& out, Stream stream, Site site = Site::current());
  // The same with send_rows[r] rows for rank r and receive_rows[r] rows from it.
  void all_to_all(const Tensor& in, std::span<const int64_t> send_rows, const Tensor& out,
                  std::span<const int64_t> receive_rows, Stream stream,
                  Site site = Site::current());
  // All messages at once: none waits for another of the same call. Between two ranks messages
  // arrive in the order in which they were sent.
  void exchange(std::span<const Message> messages, Stream stream, Site site = Site::current());
  void send(const Tensor& x, int peer, Stream stream, Site site = Site::current());
  void receive(const Tensor& x, int peer, Stream stream, Site site = Site::current());
  // The host waits until every rank's host is here.
  void barrier(Site site = Site::current());

 protected:
  explicit Communicator(GroupInfo info) : info_(std::move(info)), messages_(2 * size()) {}

  // What a backend does. Arguments have been checked, size() is 2 at least, and nothing is empty.
  // `scratch` is the u8 memory that comm/scratch.h grants; undefined where the target is cuda.
  virtual bool takes(DeviceKind kind) const = 0;
  virtual void do_all_reduce(const Tensor& x, ReduceOp op, const Tensor& scratch,
                             Stream stream) = 0;
  virtual void do_all_gather(const Tensor& shard, const Tensor& full, Stream stream) = 0;
  virtual void do_reduce_scatter(const Tensor& full, const Tensor& shard, const Tensor& scratch,
                                 Stream stream) = 0;
  virtual void do_broadcast(const Tensor& x, int root, Stream stream) = 0;
  virtual void do_all_to_all(const Tensor& in, std::span<const int64_t> send_rows,
                             const Tensor& out, std::span<const int64_t> receive_rows,
                             Stream stream) = 0;
  virtual void do_exchange(std::span<const Message> messages, Stream stream) = 0;
  virtual void do_barrier() = 0;
  // This rank gives up, for the reason given: the others must not wait for it.
  virtual void do_fail(const std::string& /*why*/) {}

  const GroupInfo& info() const { return info_; }

 private:
  void check_device(CommOp op, const Tensor& x) const;
  void check_pair(CommOp op, const Tensor& whole, const Tensor& part) const;
  void check_apart(CommOp op, const Tensor& in, const Tensor& out) const;
  void check_peer(CommOp op, int peer) const;
  void copy_local(const Tensor& from, const Tensor& to, Stream stream) const;
  Tensor scratch_like(const Tensor& x, int64_t bytes) const;
  template <class Body>
  void write_down(LedgerCall call, Body&& body);
  // The same for what moves `x` on `stream`, with a mark for whoever traces the device.
  template <class Body>
  void carry_out(const LedgerCall& call, const Tensor& x, Stream stream, Body&& body);

  GroupInfo info_;
  uint64_t calls_ = 0;              // collectives so far
  std::vector<uint64_t> messages_;  // so far: [0, size) sent to, [size, 2 size) received from
};

// All ranks of a run, from which groups are made. Owned by its rank, used from its thread.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const { return rank(); }  // among the ranks of this machine
  virtual int gpu() const { return local_rank(); }   // which GPU of this machine
  virtual std::string description() const = 0;       // "4 ranks as threads"

  // Collective over `ranks` (world ranks, in group order), which must hold rank(). The groups that
  // two ranks share are made in the same order by both. A group of one talks to nobody.
  std::unique_ptr<Communicator> group(std::vector<int> ranks, std::string name);

  // This rank cannot go on: the waits of all others throw "rank 3 failed: <why>".
  virtual void fail(const std::string& /*why*/) {}
  // Throws if another rank failed. Waits do so by themselves; this is for a rank that has none.
  virtual void check() {}

 protected:
  virtual std::shared_ptr<RankLedgers> ledgers() { return nullptr; }
  virtual std::unique_ptr<Communicator> make_group(GroupInfo info) = 0;

 private:
  std::map<std::pair<std::string, std::vector<int>>, int> made_;  // how often, to tell them apart
};

}  // namespace phx
