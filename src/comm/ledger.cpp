#include "phalanx/comm/ledger.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "phalanx/base/error.h"

namespace phx {

namespace {

// A slot, in words: all of them atomic, so that a reader may look while the writer writes. Ticket 0
// says "being written"; a reader that finds the same ticket before and after read one whole entry.
enum Slot : size_t {
  kTicket,
  kGroupId,
  kSequence,
  kKind,  // op | dtype << 8 | peer + 1 << 32
  kCount,
  kLine,
  kEntered,   // ns since 1970
  kFinished,  // 0: not yet
  kGroupName,
  kFile = kGroupName + 4,
  kSlotWords = kFile + 12
};
constexpr size_t kHeaderWords = 8;  // magic, rank, process id, tickets given out
constexpr size_t kNumTickets = 3;
constexpr uint64_t kMagic = 0x31726764656c7870;  // "pxledgr1"
constexpr size_t kWords = kHeaderWords + Ledger::kCapacity * kSlotWords;

uint64_t now() {
  return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count());
}

// From the source folder on: "src/comm/ledger.cpp".
std::string_view short_path(std::string_view path) {
  for (const std::string_view folder : {"/src/", "/tests/", "/benchmarks/"}) {
    const size_t at = path.rfind(folder);
    if (at != std::string_view::npos) return path.substr(at + 1);
  }
  return path;
}

template <size_t kNumWords>
std::array<uint64_t, kNumWords> packed(std::string_view text) {
  std::array<uint64_t, kNumWords> words{};
  const size_t bytes = std::min(text.size(), kNumWords * 8 - 1);
  std::memcpy(words.data(), text.data() + text.size() - bytes, bytes);  // the end says more
  return words;
}

std::string unpacked(const uint64_t* words, size_t count) {
  const char* text = reinterpret_cast<const char*>(words);
  return std::string(text, strnlen(text, count * 8));
}

std::string ago(std::chrono::system_clock::time_point when) {
  const auto seconds = std::chrono::duration<double>(std::chrono::system_clock::now() - when);
  return str_cat(int64_t(std::max(seconds.count(), 0.)), " s ago");
}

}  // namespace

const char* name(CommOp op) {
  constexpr std::array<const char*, kNumCommOps> names = {
      "all_reduce", "all_gather", "reduce_scatter", "broadcast",
      "all_to_all", "send",       "receive",        "barrier"};
  return names[size_t(op)];
}

std::ostream& operator<<(std::ostream& out, CommOp op) { return out << name(op); }

std::ostream& operator<<(std::ostream& out, const LedgerEntry& entry) {
  out << entry.op << " #" << entry.sequence << " of " << entry.group;
  if (entry.op == CommOp::send) out << " to rank " << entry.peer;
  if (entry.op == CommOp::receive) out << " from rank " << entry.peer;
  if (entry.op != CommOp::barrier)
    out << " (" << entry.dtype << ", " << entry.count << " elements)";
  return out << ", called from " << entry.site;
}

Ledger::Ledger(int rank) : memory_(new Word[kWords]) {
  words_ = memory_.get();
  for (size_t i = 0; i < kWords; ++i) words_[i].store(0, std::memory_order_relaxed);
  words_[1] = uint64_t(rank);
  words_[0].store(kMagic, std::memory_order_release);
}

Ledger::Ledger(int rank, const Path& file) {
  static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);
  FileHandle handle(::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!handle.is_open()) throw_file_error("make", file, errno);
  // Blocks for all of it: a write to a mapped page for which the disk has none is a bus error.
  if (const int error = ::posix_fallocate(handle.get(), 0, kWords * sizeof(Word)); error != 0)
    throw_file_error("make room for", file, error);
  mapped_ =
      ::mmap(nullptr, kWords * sizeof(Word), PROT_READ | PROT_WRITE, MAP_SHARED, handle.get(), 0);
  if (mapped_ == MAP_FAILED) throw_file_error("map", file, errno);
  words_ = static_cast<Word*>(mapped_);
  words_[1] = uint64_t(rank);
  words_[2] = uint64_t(::getpid());
  words_[0].store(kMagic, std::memory_order_release);
}

Ledger::~Ledger() {
  if (mapped_ != nullptr) ::munmap(mapped_, kWords * sizeof(Word));
}

uint64_t Ledger::enter(const LedgerCall& call) {
  const uint64_t ticket = words_[kNumTickets].load(std::memory_order_relaxed) + 1;
  Word* slot = words_ + kHeaderWords + (ticket - 1) % kCapacity * kSlotWords;
  // Release on every word: who sees one of the new words also sees that the ticket is gone.
  const auto put = [&](size_t at, uint64_t value) {
    slot[at].store(value, std::memory_order_release);
  };
  slot[kTicket].store(0, std::memory_order_relaxed);
  put(kGroupId, call.group_id);
  put(kSequence, call.sequence);
  put(kKind,
      uint64_t(call.op) | uint64_t(call.dtype) << 8 | uint64_t(uint32_t(call.peer + 1)) << 32);
  put(kCount, uint64_t(call.count));
  put(kLine, call.site.line());
  put(kEntered, now());
  put(kFinished, 0);
  const auto group = packed<kFile - kGroupName>(call.group);
  for (size_t i = 0; i < group.size(); ++i) put(kGroupName + i, group[i]);
  const auto file = packed<kSlotWords - kFile>(short_path(call.site.file_name()));
  for (size_t i = 0; i < file.size(); ++i) put(kFile + i, file[i]);
  put(kTicket, ticket);
  words_[kNumTickets].store(ticket, std::memory_order_release);
  return ticket;
}

void Ledger::finish(uint64_t ticket) {
  Word* slot = words_ + kHeaderWords + (ticket - 1) % kCapacity * kSlotWords;
  if (slot[kTicket].load(std::memory_order_relaxed) == ticket)
    slot[kFinished].store(now(), std::memory_order_release);
}

std::vector<LedgerEntry> Ledger::entries() const { return entries(words_); }

std::vector<LedgerEntry> Ledger::entries(const Word* words) {
  std::vector<LedgerEntry> found;
  const uint64_t last = words[kNumTickets].load(std::memory_order_acquire);
  const uint64_t first = last > kCapacity ? last - kCapacity + 1 : 1;
  for (uint64_t ticket = first; ticket <= last; ++ticket) {
    const Word* slot = words + kHeaderWords + (ticket - 1) % kCapacity * kSlotWords;
    if (slot[kTicket].load(std::memory_order_acquire) != ticket) continue;
    std::array<uint64_t, kSlotWords> copy;
    for (size_t i = 1; i < kSlotWords; ++i) copy[i] = slot[i].load(std::memory_order_acquire);
    if (slot[kTicket].load(std::memory_order_relaxed) != ticket) continue;
    const bool finished = copy[kFinished] != 0;
    const std::chrono::nanoseconds when(finished ? copy[kFinished] : copy[kEntered]);
    found.push_back({
        .op = CommOp(copy[kKind] & 0xff),
        .dtype = DType(copy[kKind] >> 8 & 0xff),
        .count = int64_t(copy[kCount]),
        .peer = int(uint32_t(copy[kKind] >> 32)) - 1,
        .site = str_cat(unpacked(&copy[kFile], kSlotWords - kFile), ":", copy[kLine]),
        .group_id = copy[kGroupId],
        .group = unpacked(&copy[kGroupName], kFile - kGroupName),
        .sequence = copy[kSequence],
        .finished = finished,
        .when = std::chrono::system_clock::time_point(
            std::chrono::duration_cast<std::chrono::system_clock::duration>(when)),
    });
  }
  return found;
}

std::vector<LedgerEntry> read_ledger(const Path& file) {
  const MappedFile mapped(file);
  const auto* words = reinterpret_cast<const Ledger::Word*>(mapped.data());
  PHX_CHECK(mapped.size() == int64_t(kWords * sizeof(uint64_t)) && words[0] == kMagic, file,
            " is not a ledger of collectives");
  return Ledger::entries(words);
}

LedgerEntry entry_of(const LedgerCall& call) {
  return {.op = call.op,
          .dtype = call.dtype,
          .count = call.count,
          .peer = call.peer,
          .site = str_cat(short_path(call.site.file_name()), ":", call.site.line()),
          .group_id = call.group_id,
          .group = std::string(call.group),
          .sequence = call.sequence,
          .finished = false,
          .when = std::chrono::system_clock::now()};
}

namespace {

// Whether this rank has made the call that `waiting` (of rank `own`) waits for.
bool has_entered(const std::vector<LedgerEntry>& theirs, const LedgerEntry& waiting, int own) {
  return std::any_of(theirs.begin(), theirs.end(), [&](const LedgerEntry& entry) {
    if (entry.group_id != waiting.group_id || entry.sequence < waiting.sequence) return false;
    if (!waiting.is_message()) return !entry.is_message();
    return entry.peer == own && entry.op == CommOp::send;
  });
}

std::string what_it_does(const RankLedgers::View& view) {
  if (view.ended) return "it has ended";
  if (view.entries.empty()) return "it has called nothing yet";
  const LedgerEntry& last = view.entries.back();
  return last.finished ? str_cat("its last call was ", last, ", done ", ago(last.when))
                       : str_cat("it waits in ", last, " since ", ago(last.when));
}

}  // namespace

std::string explain_stall(RankLedgers& ledgers, const std::vector<int>& members, int own,
                          const LedgerEntry& waiting) {
  std::vector<int> missing, unreadable;
  std::string first_missing;
  for (int member : members) {
    if (member == own || (waiting.is_message() && member != waiting.peer)) continue;
    const RankLedgers::View view = ledgers.read(member);
    if (!view.readable) {
      unreadable.push_back(member);
    } else if (!has_entered(view.entries, waiting, own)) {
      if (missing.empty()) first_missing = what_it_does(view);
      missing.push_back(member);
    }
  }
  const auto list = [](const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < ranks.size(); ++i)
      text += str_cat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
    return text;
  };
  std::string text;
  if (!missing.empty() && waiting.is_message()) {
    text = str_cat("rank ", own, " waits in ", waiting, ", which rank ", waiting.peer,
                   " has not sent; ", first_missing);
  } else if (!missing.empty()) {
    text = str_cat(list(missing), " did not enter ", waiting, "; ",
                   missing.size() > 1 ? str_cat("of rank ", missing[0], ": ") : "", first_missing);
  } else if (unreadable.empty()) {
    text = str_cat("all ranks entered ", waiting, ", but the bytes of some did not arrive");
  } else {
    text = str_cat("rank ", own, " waits in ", waiting);
  }
  if (!unreadable.empty())
    text += str_cat("; what ", list(unreadable),
                    " did cannot be seen from here (on other machines, set PHX_LEDGER_DIR to a "
                    "folder that all see)");
  return text;
}

}  // namespace phx
