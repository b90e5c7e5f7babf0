// What a rank has called, so that a stall can be explained: a ring of its last collectives, written
// before each is enqueued. It lies in memory (ranks as threads) or in a mapped file (processes),
// where it outlives the process and others on the machine can read it.
//
// One thread writes, any thread or process reads at any time: an entry that is being written is
// left out. Writing costs some 50 stores, no system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/core/dtype.h"

namespace phx {

enum class CommOp : uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  receive,
  barrier
};
inline constexpr int kNumCommOps = 8;
const char* name(CommOp op);
std::ostream& operator<<(std::ostream& out, CommOp op);

struct LedgerCall {
  CommOp op = CommOp::barrier;
  DType dtype = DType::u8;
  int64_t count = 0;  // elements, of the larger side
  int peer = -1;      // world rank, of a message
  std::source_location site;
  uint64_t group_id = 0;
  std::string_view group;
  // The how-many'th collective of the group; of a message, the how-many'th between these two.
  uint64_t sequence = 0;
};

struct LedgerEntry {
  CommOp op;
  DType dtype;
  int64_t count;
  int peer;
  std::string site;  // "src/parallel/tensor/column_linear.cpp:41"
  uint64_t group_id;
  std::string group;
  uint64_t sequence;
  bool finished;                               // returned to the caller; on NCCL: enqueued
  std::chrono::system_clock::time_point when;  // finished or, if it is not, entered

  bool is_message() const { return op == CommOp::send || op == CommOp::receive; }
};
// "all_reduce #17 of tp (f32, 1024 elements), called from src/x.cpp:40"
std::ostream& operator<<(std::ostream& out, const LedgerEntry& entry);

class Ledger {
 public:
  static constexpr int kCapacity = 512;

  explicit Ledger(int rank);           // in memory
  Ledger(int rank, const Path& file);  // in `file`, which is made anew
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  uint64_t enter(const LedgerCall& call);  // a ticket
  void finish(uint64_t ticket);

  std::vector<LedgerEntry> entries() const;  // oldest first

 private:
  friend std::vector<LedgerEntry> read_ledger(const Path& file);
  using Word = std::atomic<uint64_t>;
  static std::vector<LedgerEntry> entries(const Word* words);

  std::unique_ptr<Word[]> memory_;
  void* mapped_ = nullptr;
  Word* words_ = nullptr;  // a header, then kCapacity slots
};

// The entries of a ledger in a file, of this or of another process. Throws if it is none.
std::vector<LedgerEntry> read_ledger(const Path& file);

// A rank's own ledger, and a view on those of the others.
class RankLedgers {
 public:
  virtual ~RankLedgers() = default;
  virtual Ledger& own() = 0;
  struct View {
    std::vector<LedgerEntry> entries;
    bool readable = true;
    bool ended = false;  // the rank has left in good order
  };
  virtual View read(int world_rank) = 0;
};

// Why `waiting`, a call of rank `own` in a group of `members` (world ranks), does not proceed, in
// one line: which rank did not enter which collective, called from where, and what it does instead.
std::string explain_stall(RankLedgers& ledgers, const std::vector<int>& members, int own,
                          const LedgerEntry& waiting);
LedgerEntry entry_of(const LedgerCall& call);

}  // namespace phx
