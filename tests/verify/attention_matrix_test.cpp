// Every layout of the matrix of attention against one rank, in fp64.
#include "verify/attention_matrix.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "phalanx/verify/parity.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

bool wanted(const MatrixLayout& layout) {  // PHX_LAYOUT="TP4 SP, PP2": only those
  const char* filter = std::getenv("PHX_LAYOUT");
  return filter == nullptr || layout.name().find(filter) != std::string::npos;
}

TEST(AttentionMatrix, EveryLayoutComputesWhatOneRankComputes) {
  ReferenceRuns references({.steps = 2});
  EXPECT_GE(attention_matrix().size(), 20u);
  for (const MatrixLayout& layout : attention_matrix()) {
    if (!wanted(layout)) continue;
    const LayoutOutcome& one = references.of(layout, attention_reference(layout));
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, {.steps = 2});
    const Parity parity = compare(many, one);
    for (const std::string& fault : parity.faults())
      ADD_FAILURE() << layout.name() << ": " << fault;
  }
}

}  // namespace
}  // namespace phx
