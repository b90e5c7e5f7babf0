// The layouts of the matrix as trainings in fp32: the loss curve of one rank, the same bytes every
// time, and many more ranks than cores.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "phalanx/verify/layout_run.h"
#include "phalanx/verify/parity.h"
#include "verify/matrix_sample.h"
#include "verify/reference_runs.h"

namespace phx {
namespace {

using namespace phx::testing;

std::vector<MatrixLayout> matrix_in_fp32() {
  std::vector<MatrixLayout> layouts = layouts_to_run();
  for (MatrixLayout& layout : layouts) layout.config.train.fp64 = false;
  return layouts;
}

// Every number of a run to its last bit: -0 is not 0 here.
std::vector<uint64_t> bits_of(const LayoutOutcome& outcome) {
  std::vector<uint64_t> bits;
  const auto add = [&](double value) { bits.push_back(std::bit_cast<uint64_t>(value)); };
  for (const StepOutcome& step : outcome.steps) {
    add(step.loss);
    add(step.grad_norm);
  }
  for (const auto& [name, tensor] : outcome.weights)
    for (const double value : tensor.values) add(value);
  return bits;
}

TEST(TrainingMatrix, EveryLayoutHasTheLossCurveOfOneRank) {
  // Rounding to 24 bits is 6e-8 of a value, and training amplifies it. How much depends on the
  // model and the learning rate, not on the layout: here 20 steps, which take the loss from 4.2 to
  // about 2.5, bring it to 3e-7 of the loss at most. A wrong sum changes the first digits.
  constexpr double kTolerance = 1e-5;
  const LayoutRun run{.steps = 20, .keep_gradients = false, .evaluate = false};
  ReferenceRuns references(run);
  for (const MatrixLayout& layout : matrix_in_fp32()) {
    const LayoutOutcome& one = references.of(layout);
    const LayoutOutcome many =
        run_layout(layout.config, references.sources(layout.config), layout.world, run);
    EXPECT_EQ(many.between_replicas, 0) << layout.name();
    for (size_t i = 0; i < one.steps.size(); ++i)
      ASSERT_NEAR(many.steps[i].loss, one.steps[i].loss, kTolerance * one.steps[i].loss)
          << layout.name() << ", step " << i + 1;
  }
}

TEST(TrainingMatrix, ALayoutRunTwiceGivesTheSameBytes) {
  const LayoutRun run{.steps = 3, .keep_gradients = false, .evaluate = false};
  ReferenceRuns references(run);
  for (const MatrixLayout& layout : matrix_in_fp32()) {
    const Sources& sources = references.sources(layout.config);
    EXPECT_EQ(bits_of(run_layout(layout.config, sources, layout.world, run)),
              bits_of(run_layout(layout.config, sources, layout.world, run)))
        << layout.name();
  }
}

TEST(TrainingMatrix, SixtyFourRanksComputeWhatOneRankComputes) {
  RunConfig config;
  llama_like(config);
  config.model.num_layers = 4;
  config.parallel.tensor_model_parallel_size = 4;
  config.parallel.sequence_parallel = true;
  config.parallel.pipeline_model_parallel_size = 4;
  config.parallel.use_distributed_optimizer = true;
  config.parallel.overlap_grad_reduce = true;
  config.parallel.overlap_param_gather = true;
  config.parallel.ddp_bucket_size = 1500;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  const LayoutOutcome one = run_layout(on_one_rank(config, 64), 1);
  EXPECT_EQ(compare(run_layout(config, 64), one).faults(), std::vector<std::string>{});
}

}  // namespace
}  // namespace phx
