#include "phalanx/parallel/ownership.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace phx {
namespace {

Grids grids_of(const AxisSizes& dense, int ep = 1, int etp = 0) {
  return {RankGrid(dense), RankGrid(expert_sizes(dense, ep, etp == 0 ? dense.tp : etp))};
}

ParameterAxes tied_embedding() {
  return {.cut = {Axis::tp}, .partial = {Axis::dp, Axis::cp, Axis::pp}};
}
ParameterAxes expert() {
  return {.grid = Grid::expert, .cut = {Axis::tp, Axis::ep, Axis::pp}, .partial = {Axis::dp}};
}

// Where a rank stands along the axes that cut a parameter: ranks of one place hold the same
// elements.
std::string place(const ParameterAxes& axes, const Grids& grids, int rank) {
  std::string place;
  for (const Axis axis : kAllAxes)
    if (axes.cut.has(axis))
      place += std::to_string(grids.of(axes.grid).index(rank, name_of(axis))) + ".";
  return place;
}

// A rank holds a tied embedding on the first and the last stage, and everything else everywhere
// (each rank its own stage's part).
bool holds(const ParameterAxes& axes, const Grids& grids, int rank) {
  const RankGrid& grid = grids.of(axes.grid);
  const int stage = grid.index(rank, "pp");
  return !axes.on_several_stages() || stage == 0 || stage == grid.sizes().pp - 1;
}

TEST(Ownership, EveryElementIsCountedAndSavedOnceInEveryWorld) {
  for (const AxisSizes& sizes :
       {AxisSizes{}, AxisSizes{.tp = 2, .cp = 1, .ep = 1, .dp = 3, .pp = 2},
        AxisSizes{.tp = 2, .cp = 2, .ep = 1, .dp = 2, .pp = 3},
        AxisSizes{.tp = 1, .cp = 4, .ep = 1, .dp = 2, .pp = 1}}) {
    for (const int ep : {1, 2}) {
      if (sizes.world() / sizes.pp % (ep * sizes.tp) != 0) continue;
      const Grids grids = grids_of(sizes, ep);
      for (const ParameterAxes& axes :
           {cut_over_tp(), same_over_tp(), partial_over_tp(), tied_embedding(), expert()}) {
        std::map<std::string, int> counted, divided, places;
        int data_ranks = 0;
        for (int rank = 0; rank < sizes.world(); ++rank) {
          if (!holds(axes, grids, rank)) continue;
          const Ownership own = ownership_of(axes, grids, rank);
          places[place(axes, grids, rank)] = 1;
          counted[place(axes, grids, rank)] += own.counts(Division::none);
          divided[place(axes, grids, rank)] += own.counts(Division::among_all);
          data_ranks = own.data_ranks;
        }
        for (const auto& [name, one] : places) {
          EXPECT_EQ(counted[name], one) << name << " of a world of " << sizes.world();
          EXPECT_EQ(divided[name], data_ranks) << "each has a piece";
        }
      }
    }
  }
}

// Shards that are kept twice: each of a copy's ranks counts its own, the other copy's none.
TEST(Ownership, OneCopyOfTheShardsCounts) {
  Grids grids = grids_of({.tp = 2, .cp = 1, .ep = 1, .dp = 4, .pp = 1}, /*ep=*/2);
  grids.copies = 2;
  for (const ParameterAxes& axes : {cut_over_tp(), expert()}) {
    std::map<std::string, int> counted;
    for (int rank = 0; rank < 8; ++rank)
      counted[place(axes, grids, rank)] +=
          ownership_of(axes, grids, rank).counts(Division::in_copies);
    for (const auto& [name, times] : counted)
      EXPECT_EQ(times, ownership_of(axes, grids, 0).data_ranks / 2) << name;
  }
}

TEST(Ownership, AColumnCutMatrixIsSummedOverItsDataRanksAlone) {
  const Grids grids = grids_of({.tp = 2, .cp = 2, .ep = 1, .dp = 2, .pp = 2});
  for (int rank = 0; rank < 16; ++rank) {
    const Ownership own = ownership_of(cut_over_tp(), grids, rank);
    EXPECT_EQ(own.data, (Axes{Axis::dp, Axis::cp}));
    EXPECT_EQ(own.summed_after, Axes{});
    EXPECT_EQ(own.repeated, own.data);
    EXPECT_TRUE(own.speaks);
  }
}

TEST(Ownership, ANormUnderSequenceParallelismIsSummedOverTpAndSpokenForByItsFirstRank) {
  const Grids grids = grids_of({.tp = 2, .cp = 1, .ep = 1, .dp = 2, .pp = 1});
  for (int rank = 0; rank < 4; ++rank) {
    const Ownership own = ownership_of(partial_over_tp(), grids, rank);
    EXPECT_EQ(own.summed_after, (Axes{Axis::tp}));
    EXPECT_EQ(own.speaks, rank % 2 == 0);
    EXPECT_EQ(own.first_of_data, rank < 2);
    EXPECT_EQ(ownership_of(same_over_tp(), grids, rank).summed_after, Axes{})
        << "every rank has computed all of it";
  }
}

TEST(Ownership, ATiedEmbeddingIsSummedOverItsTwoStages) {
  const Grids grids = grids_of({.tp = 1, .cp = 1, .ep = 1, .dp = 1, .pp = 4});
  EXPECT_EQ(ownership_of(tied_embedding(), grids, 0).summed_after, (Axes{Axis::pp}));
  EXPECT_TRUE(ownership_of(tied_embedding(), grids, 0).speaks);
  EXPECT_FALSE(ownership_of(tied_embedding(), grids, 3).speaks);
}

TEST(Ownership, AnExpertIsSummedOverTheRanksThatHoldItOnTheExpertGrid) {
  // tp 2 x dp 4 of dense layers; 4 ranks share the experts, which are not cut: edp 2.
  const Grids grids = grids_of({.tp = 2, .cp = 1, .ep = 1, .dp = 4, .pp = 1}, /*ep=*/4, /*etp=*/1);
  EXPECT_EQ(grids.expert.sizes().dp, 2);
  for (int rank = 0; rank < 8; ++rank) {
    const Ownership own = ownership_of(expert(), grids, rank);
    EXPECT_EQ(own.data, (Axes{Axis::dp}));
    EXPECT_EQ(own.summed_after, Axes{});
    EXPECT_EQ(own.first_of_data, rank < 4);
  }
}

TEST(Ownership, AxesOfOneRankAreNotNamed) {
  const Ownership own = ownership_of(partial_over_tp(), grids_of({}), 0);
  EXPECT_TRUE(own.data.empty() && own.summed_after.empty() && own.repeated.empty());
  EXPECT_TRUE(own.speaks && own.first_of_data);
}

TEST(Ownership, ExpertsThatDoNotDivideAStageAreRefused) {
  try {
    expert_sizes({.tp = 2, .cp = 1, .ep = 1, .dp = 3, .pp = 2}, /*ep=*/4, /*tp=*/1);
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("a stage of 6 ranks"), std::string::npos);
  }
}

}  // namespace
}  // namespace phx
