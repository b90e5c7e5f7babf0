// A group of ranks and the collectives among them. Every rank of a group makes the same calls in
// the same order. A call enqueues on `stream` behind what is there already, and owns its tensors
// until `stream` has run it; on cpu and meta every stream runs inline, so the call does the work.
//
// Reductions have one order: contributions are added in rank order, in acc_dtype, and rounded once.
// The backends that share this code (threads, sockets, mpi) therefore agree to the byte; they only
// move bytes. NCCL has its own order.
//
// Before a collective is enqueued it is written into the rank's ledger (comm/ledger.h), with the
// place in the source that called it: a stall can then be explained.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace phx {

enum class ReduceOp : uint8_t { sum, max };

// One message of a group of sends and receives that proceed together.
struct Message {
  enum class Kind : uint8_t { send, receive } kind = Kind::send;
  Tensor tensor;
  int peer = 0;  // rank within the group
};

class Communicator {
 public:
  using Site = std::source_location;

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // within this group: 0 .. size() - 1
  int size() const { return int(members_.size()); }
  const std::string& name() const { return name_; }             // "tp", for messages
  const std::vector<int>& members() const { return members_; }  // world ranks, in group order
  // Whether calls are only enqueued (NCCL). If not, they have been done when they return, and a
  // receive that is posted before its time would wait for ever.
  virtual bool asynchronous() const { return false; }

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
  Communicator(std::string name, std::vector<int> members, int rank);

 private:
  int rank_;
  std::string name_;
  std::vector<int> members_;
};

// All ranks of a run, from which groups are made. Owned by its rank, used from its thread.
class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const { return rank(); }  // on this machine: which GPU
  virtual std::string description() const = 0;       // "4 ranks as threads"

  // Collective over `ranks` (world ranks, in group order), which must hold rank(). The groups that
  // two ranks share are made in the same order by both. A group of one talks to nobody.
  virtual std::unique_ptr<Communicator> group(std::vector<int> ranks, std::string name) = 0;
};

}  // namespace phx
