// Every layout of the matrix of multi-token prediction against one rank, in fp64.
#include "verify/ahead_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

// PHX_LAYOUT="PP3, TP2 SP": of all layouts only those.
std::vector<MatrixLayout> chosen_layouts() {
  const char* filter = std::getenv("PHX_LAYOUT");
  if (filter == nullptr) return layouts_to_run(ahead_matrix());
  std::vector<MatrixLayout> chosen;
  for (const MatrixLayout& layout : ahead_matrix())
    if (layout.name().find(filter) != std::string::npos) chosen.push_back(layout);
  return chosen;
}

TEST(AheadMatrix, EveryLayoutComputesWhatOneRankComputes) {
  ReferenceRuns references({.steps = 2});
  EXPECT_GE(ahead_matrix().size(), 40u);
  for (const MatrixLayout& layout : chosen_layouts()) {
    const LayoutOutcome& one = references.of(layout, ahead_reference(layout));
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, {.steps = 2});
    const Parity parity = compare(many, one);
    for (const std::string& fault : parity.faults())
      ADD_FAILURE() << layout.name() << ": " << fault;
  }
  std::cout << ahead_matrix().size() << " layouts in the matrix\n";
}

}  // namespace
}  // namespace phx
