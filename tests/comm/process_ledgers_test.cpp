#include "phalanx/comm/process_ledgers.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

class ProcessLedgersTest : public ::testing::Test {
 protected:
  ProcessLedgersTest() { ::setenv("PHX_LEDGER_DIR", folder().c_str(), 1); }
  ~ProcessLedgersTest() override { ::unsetenv("PHX_LEDGER_DIR"); }

  Path folder() const { return temporary_ / "ledgers"; }
  Path file(int rank) const { return folder() / ("rank-" + std::to_string(rank) + ".ledger"); }

  TempFolder temporary_;
};

LedgerCall a_barrier() {
  return {.op = CommOp::barrier,
          .site = std::source_location::current(),
          .group_id = 1,
          .group = "all",
          .sequence = 1};
}

TEST_F(ProcessLedgersTest, OneRankReadsWhatAnotherDid) {
  ProcessLedgers zero({.rank = 0, .size = 2}), one({.rank = 1, .size = 2});
  one.own().enter(a_barrier());
  const auto view = zero.read(1);
  EXPECT_TRUE(view.readable);
  ASSERT_EQ(view.entries.size(), 1u);
  EXPECT_EQ(view.entries[0].op, CommOp::barrier);
  EXPECT_EQ(zero.read(0).entries.size(), 0u);
}

TEST_F(ProcessLedgersTest, InGoodOrderTheFileGoesAndTheFolderWithTheLast) {
  {
    ProcessLedgers zero({.rank = 0, .size = 2});
    { ProcessLedgers one({.rank = 1, .size = 2}); }
    EXPECT_FALSE(std::filesystem::exists(file(1)));
    EXPECT_TRUE(std::filesystem::exists(file(0)));
    EXPECT_TRUE(zero.read(1).ended) << "a file of this machine that is gone was removed";
  }
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(ProcessLedgersTest, AfterAFailureItStays) {
  {
    ProcessLedgers zero({.rank = 0, .size = 2});
    zero.keep();
  }
  EXPECT_TRUE(std::filesystem::exists(file(0)));
  try {
    ProcessLedgers one({.rank = 1, .size = 2});
    throw 1;
  } catch (int) {
  }
  EXPECT_TRUE(std::filesystem::exists(file(1))) << "an exception is a failure";
}

TEST_F(ProcessLedgersTest, OfOtherMachinesNothingIsKnown) {
  ProcessLedgers two(
      {.rank = 2, .size = 4, .local_rank = 0, .local_size = 2, .one_machine = false});
  EXPECT_TRUE(two.read(3).ended) << "rank 3 is on this machine";
  EXPECT_FALSE(two.read(3).readable && !two.read(3).ended);
  EXPECT_FALSE(two.read(1).ended);
  EXPECT_FALSE(two.read(1).readable);
  ProcessLedgers odd(
      {.rank = 0, .size = 4, .local_size = 2, .one_machine = false, .numbered_in_turn = false});
  EXPECT_FALSE(odd.read(1).ended) << "which ranks are here is not known";
}

TEST_F(ProcessLedgersTest, TheFirstToFailIsNotedOnceAndForgottenByTheNextRun) {
  {
    ProcessLedgers one({.rank = 1, .size = 3}), two({.rank = 2, .size = 3});
    EXPECT_FALSE(ProcessLedgers::first_failure(folder()));
    two.note_first_failure();
    one.note_first_failure();
    EXPECT_EQ(ProcessLedgers::first_failure(folder()), 2);
  }
  ProcessLedgers zero({.rank = 0, .size = 3});
  EXPECT_FALSE(ProcessLedgers::first_failure(folder()));
}

}  // namespace
}  // namespace phx
