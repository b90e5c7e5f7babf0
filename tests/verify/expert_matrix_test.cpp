// Every layout of the matrix of experts against one rank, in fp64.
#include "verify/expert_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

// PHX_LAYOUT="EP2, all-to-all": of all layouts only those.
std::vector<MatrixLayout> chosen_layouts() {
  const char* filter = std::getenv("PHX_LAYOUT");
  if (filter == nullptr) return layouts_to_run(expert_matrix());
  std::vector<MatrixLayout> chosen;
  for (const MatrixLayout& layout : expert_matrix())
    if (layout.name().find(filter) != std::string::npos) chosen.push_back(layout);
  return chosen;
}

bool has_buffers(const MoeConfig& moe) {
  return moe.moe_router_enable_expert_bias || moe.coefficient("global_aux_loss") != 0;
}

TEST(ExpertMatrix, EveryLayoutComputesWhatOneRankComputes) {
  ReferenceRuns references({.steps = 2});
  EXPECT_GE(expert_matrix().size(), 90u);
  for (const MatrixLayout& layout : chosen_layouts()) try {
      const LayoutOutcome& one = references.of(layout, expert_reference(layout));
      const LayoutOutcome many =
          run_layout(layout.config, references.sources(layout.config), layout.world, {.steps = 2});
      const Parity parity = compare(many, one);
      EXPECT_FALSE(one.steps[0].routers.empty());
      EXPECT_EQ(one.buffers.empty(), !has_buffers(layout.config.model.moe)) << layout.name();
      for (const std::string& fault : parity.faults())
        ADD_FAILURE() << layout.name() << ": " << fault;
    } catch (const Error& error) {
      ADD_FAILURE() << layout.name() << ": " << error.what();
    }
  std::cout << expert_matrix().size() << " layouts in the matrix\n";
}

TEST(ExpertMatrix, HasEveryPairOfSettingsThatGoTogether) {
  EXPECT_EQ(names_there_twice(expert_matrix()), std::set<std::string>{});
  std::set<std::string> excluded;
  const auto exclude = [&](const char* setting, std::initializer_list<const char*> others) {
    for (const char* other : others) excluded.insert(str_cat(setting, " with ", other));
  };
  // EP x ETP, ETP = TP if it is not given, divides the TP x DP ranks of a stage, of which there are
  // 16 / PP at most.
  exclude("EP2", {"DP1"});
  exclude("EP4", {"DP1", "DP2", "DP2 overlap", "DP2 ZeRO-1 overlap both"});
  for (const char* eight : {"EP4 ETP2", "EP8 ETP1"})
    exclude(eight, {"TP1", "DP1", "PP4", "PP4 zb-h1", "PP4 VPP2"});
  // With this order of ranks it equals TP.
  for (const char* more : {"EP2", "EP4", "EP4 ETP2", "EP8 ETP1"}) exclude(more, {"tp-pp-dp"});
  // Interleaved micro-batches come in groups of one for every stage.
  exclude("PP2 VPP2", {"1 x 2"});
  exclude("PP4 VPP2", {"1 x 2", "2 x 1"});
  EXPECT_EQ(pairs_without_layout(expert_matrix_options(), expert_matrix()), excluded);
}

TEST(ExpertMatrix, LessRoomIsLessThanTheWorstCaseNeeds) {
  int bite = 0;
  for (const MatrixLayout& layout : expert_matrix()) {
    const MoeConfig& moe = layout.config.model.moe;
    const int64_t ep = layout.config.parallel.expert_model_parallel_size;
    if (!moe.moe_expert_rank_capacity_factor || ep == 1 || moe.moe_router_group_topk == 1) continue;
    EXPECT_LT(*moe.moe_expert_rank_capacity_factor, worst_share(layout.config)) << layout.name();
    ++bite;
  }
  EXPECT_GE(bite, 5);
}

}  // namespace
}  // namespace phx
