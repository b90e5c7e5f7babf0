// Every layout of fully sharded data parallelism against one rank, in fp64.
#include "verify/shard_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

// PHX_LAYOUT="DP2 ZeRO-3": of all layouts only those.
std::vector<MatrixLayout> chosen_layouts() {
  const char* filter = std::getenv("PHX_LAYOUT");
  if (filter == nullptr) return layouts_to_run(shard_matrix());
  std::vector<MatrixLayout> chosen;
  for (const MatrixLayout& layout : shard_matrix())
    if (layout.name().find(filter) != std::string::npos) chosen.push_back(layout);
  return chosen;
}

TEST(ShardMatrix, EveryLayoutComputesWhatOneRankComputes) {
  // The first step learns in which order units are used, the next ones follow it.
  const LayoutRun run{.steps = 3, .evaluate = true};
  ReferenceRuns references(run);
  EXPECT_GE(shard_matrix().size(), 60u);
  for (const MatrixLayout& layout : chosen_layouts()) {
    const LayoutOutcome& one = references.of(layout, shard_reference(layout));
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, run);
    const Parity parity = compare(many, one);
    for (const std::string& fault : parity.faults())
      ADD_FAILURE() << layout.name() << ": " << fault;
  }
  std::cout << shard_matrix().size() << " layouts in the matrix\n";
}

}  // namespace
}  // namespace phx
