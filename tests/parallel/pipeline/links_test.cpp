#include "phalanx/parallel/pipeline/links.h"

#include <gtest/gtest.h>

#include "phalanx/comm/meta_world.h"

namespace phx {
namespace {

using Members = std::vector<int>;

TEST(PipelineLinks, TheEndsOfAPipelineHaveNeighboursOnOneSideAlone) {
  MetaWorld world(4, 8);
  const PipelineGroups groups(world, {4, 5, 6, 7}, /*chunks=*/1);
  const PipelineLinks first = groups.links();
  EXPECT_EQ(first.forward_in, nullptr);
  EXPECT_EQ(first.backward_out, nullptr);
  ASSERT_NE(first.forward_out, nullptr);
  ASSERT_NE(first.backward_in, nullptr);
  EXPECT_EQ(first.forward_out->members(), (Members{4, 5}));
  EXPECT_EQ(first.forward_out->rank(), 0) << "the sender is the first of its group";
  EXPECT_EQ(first.backward_in->members(), (Members{5, 4}));
  EXPECT_EQ(first.backward_in->rank(), 1);

  MetaWorld last_world(7, 8);
  const PipelineGroups last_groups(last_world, {4, 5, 6, 7}, /*chunks=*/1);
  const PipelineLinks last = last_groups.links();
  EXPECT_EQ(last.forward_out, nullptr);
  EXPECT_EQ(last.backward_in, nullptr);
  EXPECT_EQ(last.forward_in->members(), (Members{6, 7}));
  EXPECT_EQ(last.backward_out->members(), (Members{7, 6}));
}

TEST(PipelineLinks, SeveralChunksCloseTheRing) {
  MetaWorld world(0, 3);
  const PipelineGroups groups(world, {0, 1, 2}, /*chunks=*/2);
  EXPECT_EQ(groups.links().forward_in->members(), (Members{2, 0}));
  EXPECT_EQ(groups.links().backward_out->members(), (Members{0, 2}));
  EXPECT_EQ(groups.links().forward_out->members(), (Members{0, 1}));
  EXPECT_EQ(groups.links().backward_in->members(), (Members{1, 0}));
}

TEST(PipelineLinks, TwoRanksInARingHaveAGroupForEachDirectionAndEnd) {
  MetaWorld world(1, 2);
  const PipelineGroups groups(world, {0, 1}, /*chunks=*/2);
  const PipelineLinks links = groups.links();
  EXPECT_EQ(links.forward_in->members(), (Members{0, 1}));
  EXPECT_EQ(links.forward_out->members(), (Members{1, 0}));
  EXPECT_EQ(links.backward_in->members(), (Members{0, 1}));
  EXPECT_EQ(links.backward_out->members(), (Members{1, 0}));
  EXPECT_NE(links.forward_in, links.backward_in) << "a message that waits holds up no other kind";
  EXPECT_EQ(links.forward_in->name(), "pp-forward");
  EXPECT_EQ(links.backward_in->name(), "pp-backward");
}

TEST(PipelineLinks, OneStageTalksToNobody) {
  MetaWorld world(0, 1);
  const PipelineLinks links = PipelineGroups(world, {0}, /*chunks=*/2).links();
  EXPECT_TRUE(links.forward_in == nullptr && links.forward_out == nullptr &&
              links.backward_in == nullptr && links.backward_out == nullptr);
}

}  // namespace
}  // namespace phx
