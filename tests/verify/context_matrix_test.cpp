// Every layout of context parallelism against one rank, in fp64.
#include "verify/context_matrix.h"

#include <gmock/gmock.h>
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
  EXPECT_GE(context_matrix().size(), 120u);
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

TEST(ContextMatrix, HasEveryPairOfSettingsThatGoTogether) {
  EXPECT_EQ(names_there_twice(context_matrix()), std::set<std::string>{});
  std::set<std::string> excluded;
  const auto exclude = [&](std::initializer_list<const char*> settings,
                           std::initializer_list<const char*> others) {
    for (const char* setting : settings)
      for (const char* other : others) excluded.insert(str_cat(setting, " with ", other));
  };
  // More than 16 ranks.
  exclude({"PP4"}, {"CP8 p2p", "CP8 a2a", "CP8 a2a+p2p 2 4", "CP8 a2a+p2p 4 2"});
  exclude({"CP8 p2p", "CP8 a2a", "CP8 a2a+p2p 2 4", "CP8 a2a+p2p 4 2"}, {"TP4", "TP4 SP"});
  // Two key heads.
  exclude({"shared key heads"}, {"CP4 a2a", "CP4 a2a+p2p 4 1", "CP8 a2a", "CP8 a2a+p2p 4 2"});
  // Models without experts, and experts where tensor-parallel ranks have the same tokens.
  exclude({"GPT-2", "Llama", "shared key heads", "windows", "latent"}, {"EP2", "EP4 ETP1"});
  exclude({"TP2", "TP4"}, {"EP2", "EP4 ETP1"});
  exclude({"experts", "experts in order"}, {"TP2", "TP4"});
  EXPECT_THAT(pairs_without_layout(context_matrix_options(), context_matrix()),
              ::testing::ContainerEq(excluded));
}

}  // namespace
}  // namespace phx
