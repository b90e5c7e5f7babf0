// The layouts of the matrix as trainings of 20 steps in fp32.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "verify/layout_run.h"
#include "verify/parity_matrix.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(TrainingMatrix, Measure) {
  const LayoutRun run{.steps = 20, .keep_gradients = false};
  ReferenceRuns references(run);
  double all = 0;
  for (MatrixLayout& layout : parity_matrix()) {
    layout.config.train.fp64 = false;
    const LayoutOutcome& one = references.of(layout);
    const auto begin = std::chrono::steady_clock::now();
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, run);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    all += seconds;
    double worst = 0;
    for (size_t i = 0; i < 20; ++i)
      worst = std::max(worst, std::abs(many.steps[i].loss - one.steps[i].loss) / one.steps[i].loss);
    std::cout << worst << " " << seconds << " s, loss " << one.steps[0].loss << " to " << one.steps[19].loss << " norm " << one.steps[0].grad_norm
              << " " << one.steps[19].grad_norm << ": " << layout.name() << "\n";
  }
  std::cout << "all " << all << " s, " << references.size() << " references\n";
}

}  // namespace
}  // namespace phx
