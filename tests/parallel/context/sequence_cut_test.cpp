#include "phalanx/parallel/context/sequence_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gradients.h"

namespace phx {
namespace {

using ::testing::ElementsAre;

TEST(SequenceCut, ARankHasAnEarlyAndALateChunk) {
  // 8 chunks of 3 rows.
  EXPECT_THAT((SequenceCut{.ranks = 4, .rank = 1}.spans(24)),
              ElementsAre(RowSpan{.local = 0, .global = 3, .count = 3},
                          RowSpan{.local = 3, .global = 18, .count = 3}));
  EXPECT_THAT((SequenceCut{.ranks = 1, .rank = 0}.spans(7)),
              ElementsAre(RowSpan{.local = 0, .global = 0, .count = 7}));
}

TEST(SequenceCut, RowsOfAPartMayLieInBothChunks) {
  const SequenceCut cut{.ranks = 2, .rank = 1};  // rows 4 .. 7 and 8 .. 11 of 16
  EXPECT_THAT(cut.spans(16, 2, 4), ElementsAre(RowSpan{.local = 2, .global = 6, .count = 2},
                                               RowSpan{.local = 4, .global = 8, .count = 2}));
  EXPECT_THAT(cut.spans(16, 5, 2), ElementsAre(RowSpan{.local = 5, .global = 9, .count = 2}));
}

TEST(SequenceCut, EveryRowHasOneRank) {
  for (const int64_t ranks : {1, 2, 3, 8}) {
    const int64_t s = 4 * ranks;
    std::vector<int> seen(size_t(s), 0);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const SequenceCut cut{.ranks = ranks, .rank = rank};
      for (const RowSpan& span : cut.spans(s))
        for (int64_t i = 0; i < span.count; ++i) ++seen[size_t(span.global + i)];
      if (ranks == 1) continue;
      for (size_t place = 0; place < 2; ++place) {
        EXPECT_EQ(cut.owner(cut.chunks()[place]), rank);
        EXPECT_EQ(cut.place(cut.chunks()[place]), int64_t(place));
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1)) << ranks << " ranks";
  }
}

TEST(SequenceCut, RowsOfRanksAndRowsOfTheSequenceAreTheSameInAnotherOrder) {
  const std::vector<double> counted = {0, 1, 2, 3, 4, 5, 6, 7};
  // Two ranks, chunks of two rows.
  const Tensor by_rank = from_values(counted, {8, 1}, DType::f64, testing::test_device());
  const Tensor sequence = in_sequence_order(by_rank, 2);
  EXPECT_THAT(to_values(sequence), ElementsAre(0, 1, 4, 5, 6, 7, 2, 3));
  EXPECT_EQ(to_values(in_rank_order(sequence, 2)), counted);
  EXPECT_EQ(testing::error_of([&] { in_rank_order(by_rank, 3); }),
            "8 rows are not two chunks for each of 3 ranks");
}

TEST(SequenceCut, ALengthThatHasNoChunksForAllIsAnError) {
  EXPECT_EQ(testing::error_of([] { SequenceCut{.ranks = 2}.spans(10); }),
            "a sequence of 10 cannot be cut into two chunks for each of 2 ranks");
}

}  // namespace
}  // namespace phx
