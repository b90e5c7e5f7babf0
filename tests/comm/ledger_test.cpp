#include "phalanx/comm/ledger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

LedgerCall call(CommOp op, uint64_t sequence, uint64_t group = 1, int peer = -1) {
  return {.op = op,
          .dtype = DType::bf16,
          .count = int64_t(sequence * 10),
          .peer = peer,
          .site = std::source_location::current(),
          .group_id = group,
          .group = group == 1 ? "tp" : "dp",
          .sequence = sequence};
}

TEST(Ledger, KeepsTheLatestCalls) {
  Ledger ledger(0);
  const uint64_t calls = Ledger::kCapacity + 5;
  for (uint64_t i = 1; i <= calls; ++i) {
    const uint64_t ticket = ledger.enter(call(CommOp::all_gather, i));
    if (i < calls) ledger.finish(ticket);
  }
  const auto entries = ledger.entries();
  ASSERT_EQ(entries.size(), size_t{Ledger::kCapacity});
  EXPECT_EQ(entries.front().sequence, 6);
  EXPECT_TRUE(entries.front().finished);
  const LedgerEntry& last = entries.back();
  EXPECT_EQ(last.sequence, calls);
  EXPECT_EQ(last.op, CommOp::all_gather);
  EXPECT_EQ(last.dtype, DType::bf16);
  EXPECT_EQ(last.count, int64_t(calls) * 10);
  EXPECT_EQ(last.group, "tp");
  EXPECT_EQ(last.peer, -1);
  EXPECT_FALSE(last.finished);
  EXPECT_TRUE(last.site.starts_with("tests/comm/ledger_test.cpp:")) << last.site;
}

TEST(Ledger, IsReadFromItsFile) {
  const TempFolder folder;
  {
    Ledger ledger(3, folder / "rank-3.ledger");
    ledger.enter(call(CommOp::send, 4, 2, 7));
    EXPECT_EQ(read_ledger(folder / "rank-3.ledger").size(), 1) << "while it is open";
  }
  const auto entries = read_ledger(folder / "rank-3.ledger");
  ASSERT_EQ(entries.size(), 1);
  EXPECT_EQ(entries[0].peer, 7);
  EXPECT_EQ(str_cat(entries[0]).substr(0, str_cat(entries[0]).rfind(':')),
            "send #4 of dp to rank 7 (bf16, 40 elements), called from tests/comm/ledger_test.cpp");
  write_file(folder / "other", "not a ledger");
  EXPECT_NE(testing::error_of([&] {
              read_ledger(folder / "other");
            }).find("is not a ledger of collectives"),
            std::string::npos);
}

// A reader never sees halves of two calls: here op, count and sequence belong together.
TEST(Ledger, IsReadWhileItIsWritten) {
  Ledger ledger(0);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (uint64_t i = 1; !stop; ++i)
      ledger.finish(ledger.enter(call(i % 2 ? CommOp::all_reduce : CommOp::barrier, i)));
  });
  size_t seen = 0;
  while (seen < 20000) {
    for (const LedgerEntry& entry : ledger.entries()) {
      ASSERT_EQ(entry.count, int64_t(entry.sequence * 10));
      ASSERT_EQ(entry.op, entry.sequence % 2 ? CommOp::all_reduce : CommOp::barrier);
      ++seen;
    }
  }
  stop = true;
  writer.join();
}

class FakeLedgers : public RankLedgers {
 public:
  Ledger& own() override { return at(0); }
  View read(int rank) override {
    if (unreadable.contains(rank)) return {.readable = false};
    return {.entries = at(rank).entries()};
  }
  Ledger& at(int rank) {
    auto& slot = ledgers[rank];
    if (!slot) slot = std::make_unique<Ledger>(rank);
    return *slot;
  }
  std::map<int, std::unique_ptr<Ledger>> ledgers;
  std::map<int, bool> unreadable;
};

// Without the lines of this file.
std::string explain(FakeLedgers& ledgers, const std::vector<int>& members, const LedgerCall& call) {
  std::string text = explain_stall(ledgers, members, 0, entry_of(call));
  const std::string here = "tests/comm/ledger_test.cpp:";
  for (size_t at; (at = text.find(here)) != std::string::npos;)
    text.replace(at, text.find_first_not_of("0123456789", at + here.size()) - at, "HERE");
  return text;
}

TEST(Ledger, AStallNamesTheOneWhoIsElsewhere) {
  FakeLedgers ledgers;
  for (int rank : {0, 1, 2})
    ledgers.at(rank).finish(ledgers.at(rank).enter(call(CommOp::all_reduce, 6)));
  const LedgerCall waiting = call(CommOp::all_reduce, 7);
  ledgers.at(0).enter(waiting);
  ledgers.at(1).enter(waiting);
  ledgers.at(2).enter(call(CommOp::all_gather, 9, 2));
  EXPECT_EQ(explain(ledgers, {0, 1, 2}, waiting),
            "rank 2 did not enter all_reduce #7 of tp (bf16, 70 elements), called from HERE; it "
            "waits in all_gather #9 of dp (bf16, 90 elements), called from HERE since 0 s ago");
}

TEST(Ledger, AStallNamesAllWhoAreMissing) {
  FakeLedgers ledgers;
  const LedgerCall waiting = call(CommOp::barrier, 1);
  ledgers.at(4).enter(waiting);
  EXPECT_EQ(explain(ledgers, {0, 4, 5, 6, 7}, waiting),
            "ranks 5, 6 and 7 did not enter barrier #1 of tp, called from HERE; of rank 5: it has "
            "called nothing yet");
}

TEST(Ledger, AStallOfAMessageLooksAtItsSenderOnly) {
  FakeLedgers ledgers;
  ledgers.at(1).finish(ledgers.at(1).enter(call(CommOp::send, 1, 1, 0)));
  ledgers.at(1).finish(ledgers.at(1).enter(call(CommOp::send, 2, 1, 3)));  // to another
  EXPECT_EQ(explain(ledgers, {0, 1, 2}, call(CommOp::receive, 2, 1, 1)),
            "rank 0 waits in receive #2 of tp from rank 1 (bf16, 20 elements), called from HERE, "
            "which rank 1 has not sent; its last call was send #2 of tp to rank 3 (bf16, 20 "
            "elements), called from HERE, done 0 s ago");
}

TEST(Ledger, AStallSaysWhatCannotBeSeen) {
  FakeLedgers ledgers;
  ledgers.unreadable[1] = true;
  EXPECT_EQ(explain(ledgers, {0, 1}, call(CommOp::barrier, 1)),
            "rank 0 waits in barrier #1 of tp, called from HERE; what rank 1 did cannot be seen "
            "from here (on other machines, set PHX_LEDGER_DIR to a folder that all see)");
}

}  // namespace
}  // namespace phx
