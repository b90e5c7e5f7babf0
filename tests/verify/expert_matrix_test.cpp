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

TEST(ExpertMatrix, EveryLayoutComputesWhatOneRankComputes) {
  ReferenceRuns references({.steps = 2});
  EXPECT_GE(expert_matrix().size(), 90u);
  for (const MatrixLayout& layout : chosen_layouts()) {
    const LayoutOutcome& one = references.of(layout, expert_reference(layout));
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, {.steps = 2});
    const Parity parity = compare(many, one);
    for (const std::string& fault : parity.faults())
      ADD_FAILURE() << layout.name() << ": " << fault;
  }
  std::cout << expert_matrix().size() << " layouts in the matrix\n";
}

TEST(ExpertMatrix, LessRoomIsLessThanTheWorstCaseNeeds) {
  int bite = 0;
  for (const MatrixLayout& layout : expert_matrix()) {
    const MoeConfig& moe = layout.config.model.moe;
    const int64_t ep = layout.config.parallel.expert_model_parallel_size;
    if (!moe.moe_expert_rank_capacity_factor || ep == 1) continue;
    const int64_t local = *moe.num_experts / ep, k = moe.moe_router_topk;
    const double worst = double(ep * std::min(k, local)) / double(k);
    EXPECT_LT(*moe.moe_expert_rank_capacity_factor, worst) << layout.name();
    ++bite;
  }
  EXPECT_GE(bite, 5);
}

}  // namespace
}  // namespace phx
