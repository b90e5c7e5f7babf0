// Every layout of context parallelism against one rank, in fp64.
#include "verify/context_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

// PHX_LAYOUT="CP4 p2p": of all layouts only those.
std::vector<MatrixLayout> chosen_layouts() {
  const char* filter = std::getenv("PHX_LAYOUT");
  if (filter == nullptr) return layouts_to_run(context_matrix());
  std::vector<MatrixLayout> chosen;
  for (const MatrixLayout& layout : context_matrix())
    if (layout.name().find(filter) != std::string::npos) chosen.push_back(layout);
  return chosen;
}

TEST(ContextMatrix, EveryLayoutComputesWhatOneRankComputes) {
  const LayoutRun run{.steps = 3, .evaluate = true};
  ReferenceRuns references(run);
  EXPECT_GE(context_matrix().size(), 60u);
  for (const MatrixLayout& layout : chosen_layouts()) try {
      const LayoutOutcome& one = references.of(layout, context_reference(layout));
      const LayoutOutcome many =
          run_layout(layout.config, references.sources(layout.config), layout.world, run);
      const Parity parity = compare(many, one);
      for (const std::string& fault : parity.faults())
        ADD_FAILURE() << layout.name() << ": " << fault;
    } catch (const Error& error) {
      ADD_FAILURE() << layout.name() << ": " << error.what();
    }
  std::cout << context_matrix().size() << " layouts in the matrix\n";
}

}  // namespace
}  // namespace phx
