#include "phalanx/text/tokenizer/merge_table.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

TEST(MergeTable, GivesRanksAndTheTokensThatPairsBecome) {
  MergeTable table;
  const std::vector<BpeMerge> merges = {{1, 2, 10, 0}, {10, 3, 11, 1}, {2, 1, 12, 2}};
  table.build(merges);
  EXPECT_EQ(table.rank(1, 2), 0u);
  EXPECT_EQ(table.rank(10, 3), 1u);
  EXPECT_EQ(table.rank(2, 1), 2u) << "pairs have an order";
  EXPECT_EQ(table.rank(3, 10), MergeTable::kNone);
  EXPECT_EQ(table.merged(1), 11);
}

TEST(MergeTable, TokensNeedNotBeNumberedAsTheirMerges) {
  MergeTable table;
  const std::vector<BpeMerge> merges = {{1, 2, 50, 0}, {2, 3, 7, 1}};
  table.build(merges);
  EXPECT_EQ(table.merged(0), 50);
  EXPECT_EQ(table.merged(1), 7);
}

TEST(MergeTable, TheLastOfEqualPairsStays) {
  MergeTable table;
  const std::vector<BpeMerge> merges = {{1, 2, 10, 0}, {1, 2, 11, 1}};
  table.build(merges);
  EXPECT_EQ(table.rank(1, 2), 1u);
}

TEST(MergeTable, LowAndHighRanksAreFoundAlike) {  // they lie in two tables
  MergeTable table;
  std::vector<BpeMerge> merges;
  for (uint32_t i = 0; i < 20000; ++i)
    merges.push_back({int32_t(i % 700), int32_t(700 + i / 700), int32_t(1000 + i), i});
  table.build(merges);
  for (const BpeMerge& merge : merges) ASSERT_EQ(table.rank(merge.left, merge.right), merge.rank);
  EXPECT_EQ(table.rank(700, 700), MergeTable::kNone);
}

TEST(MergeTable, ARankThatDoesNotFitIsAnError) {
  MergeTable table;
  const std::vector<BpeMerge> merges = {{1, 2, 3, uint32_t(MergeTable::kMaxRanks)}};
  EXPECT_THROW(table.build(merges), Error);
}

}  // namespace
}  // namespace phx
