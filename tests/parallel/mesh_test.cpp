#include "phalanx/parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "phalanx/comm/thread_world.h"

namespace phx {
namespace {

// Sizes of a rank's groups; 1: it has none.
int size_of(const Communicator* group) { return group == nullptr ? 1 : group->size(); }

TEST(Mesh, OneRankIsNoGroupAtAll) {
  const Mesh mesh;
  EXPECT_EQ(mesh.size(), 1);
  EXPECT_TRUE(mesh.first_stage() && mesh.last_stage());
  EXPECT_EQ(mesh.world(), nullptr);
  EXPECT_EQ(mesh.tp(), nullptr);
  EXPECT_EQ(mesh.dp_cp(), nullptr);
  EXPECT_EQ(mesh.links().forward_in, nullptr);
}

TEST(Mesh, RanksOfSamplesAndOfPositionsAreOneGroupButTwoAxes) {
  std::mutex mutex;
  std::set<int> data_ranks, group_ranks;
  run_thread_ranks(8, {}, [&](World& world) {
    const Mesh mesh(world, {.sizes = {.tp = 2, .cp = 2, .ep = 1, .dp = 2, .pp = 1}});
    EXPECT_EQ(size_of(mesh.tp()), 2);
    EXPECT_EQ(size_of(mesh.dp_cp()), 4);
    const std::scoped_lock lock(mutex);
    data_ranks.insert(mesh.dp_rank());
    group_ranks.insert(mesh.dp_cp()->rank());
  });
  EXPECT_EQ(data_ranks, (std::set{0, 1})) << "which samples a rank reads";
  EXPECT_EQ(group_ranks, (std::set{0, 1, 2, 3})) << "which piece of the optimizer it owns";
}

TEST(Mesh, RanksThatShareSequencesHaveNeighboursAndARing) {
  run_thread_ranks(8, {}, [&](World& world) {
    const Mesh mesh(world, {.sizes = {.tp = 2, .cp = 4, .ep = 1, .dp = 1, .pp = 1}, .cp_inner = 2});
    const int tp = world.rank() % 2, cp = world.rank() / 2;
    EXPECT_EQ(mesh.cp_rank(), cp);
    EXPECT_EQ(mesh.cp()->members(), (std::vector{tp, 2 + tp, 4 + tp, 6 + tp}));
    const int first = cp / 2 * 4 + tp;
    EXPECT_EQ(mesh.cp_inner()->members(), (std::vector{first, first + 2}));
    const int place = cp % 2 * 2 + tp;
    EXPECT_EQ(mesh.cp_outer()->members(), (std::vector{place, place + 4}));
  });
  run_thread_ranks(2, {}, [&](World& world) {
    const Mesh mesh(world, {.sizes = {.cp = 2}, .cp_inner = 2});
    EXPECT_EQ(size_of(mesh.cp()), 2);
    EXPECT_EQ(size_of(mesh.cp_inner()), 1) << "all of them are neighbours";
  });
}

TEST(Mesh, BucketsAreSummedOverTheRanksThatOwnershipNames) {
  for (const char* order : {kDefaultOrder, kPipelineBeforeData})
    run_thread_ranks(8, {}, [&](World& world) {
      const AxisSizes sizes{.tp = 1, .cp = 2, .ep = 1, .dp = 2, .pp = 2};
      const Mesh mesh(world, {.sizes = sizes, .order = order, .experts = true, .ep = 2});
      const RankGrid dense(sizes, order), expert(expert_sizes(sizes, 2, 1), order);
      EXPECT_EQ(mesh.data(Grid::dense)->members(), dense.group_of(world.rank(), "dp-cp"));
      EXPECT_EQ(mesh.data(Grid::expert)->members(), expert.group_of(world.rank(), "dp"));
      EXPECT_EQ(mesh.data_size(Grid::dense), 4);
      EXPECT_EQ(mesh.data_size(Grid::expert), 2);
    });
}

TEST(Mesh, GradientsOfAnEmbeddingAreSummedOverTheStagesThatHaveIt) {
  const ParameterAxes shared = on_several_stages(cut_over_tp());
  EXPECT_EQ(shared.cut, (Axes{Axis::tp}));
  EXPECT_EQ(shared.partial, (Axes{Axis::dp, Axis::cp, Axis::pp}));
  // None but the first; tied to the head; with multi-token prediction before the head; both.
  for (const std::vector<int>& holders :
       {std::vector{0}, std::vector{0, 2}, std::vector{0, 1}, std::vector{0, 1, 2}}) {
    run_thread_ranks(3, {}, [&](World& world) {
      const Mesh mesh(world, {.sizes = {.tp = 1, .cp = 1, .ep = 1, .dp = 1, .pp = 3},
                              .embedding_stages = holders});
      const bool has_it = std::ranges::find(holders, world.rank()) != holders.end();
      EXPECT_EQ(size_of(mesh.summed_after(Axis::pp)), has_it ? int(holders.size()) : 1);
      if (!has_it) return;
      EXPECT_TRUE(mesh.ownership_of(shared).summed_after.has(Axis::pp));
      EXPECT_EQ(mesh.ownership_of(shared).speaks, mesh.first_stage());
    });
  }
}

TEST(Mesh, AWorldOfAnotherSizeIsRefused) {
  run_thread_ranks(2, {}, [&](World& world) {
    try {
      const Mesh mesh(world, {.sizes = {.tp = 4, .cp = 1, .ep = 1, .dp = 1, .pp = 1}});
      ADD_FAILURE() << "a mesh of 4 on 2 ranks";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("the mesh has 4 ranks, but there are 2"),
                std::string::npos);
    }
  });
}

TEST(Mesh, SumsAfterTheBucketsHaveNoGroupAlongDataAxes) {
  EXPECT_ANY_THROW(Mesh().summed_after(Axis::dp));
}

}  // namespace
}  // namespace phx
