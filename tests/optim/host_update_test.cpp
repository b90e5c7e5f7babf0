#include "phalanx/optim/host_update.h"

#include <gtest/gtest.h>

#include <cmath>

#include "optim/toy_run.h"
#include "phalanx/kernels/elementwise.h"

namespace phx {
namespace {

using namespace phx::testing;

UpdateRule rule_called(const std::string& name) {
  for (const UpdateRule& rule : standard_update_rules())  // lives as long as the loop
    if (rule.name == name) return rule;
  throw_error("no rule " + name);
}

// A store on a runtime of its own, and scalars of a step that neither clips nor skips.
struct HostRun {
  explicit HostRun(DType dtype)
      : store(model, runtime.device(), {.dtype = dtype, .seed = 5}), scalars(runtime.device()) {
    StepValues values = step_values(1, 0.9, 0.999, /*tokens=*/1);
    values.lr = values.decoupled_lr = 0.1;
    scalars.begin_step(values);
    Tensor clip = scalars.slot(Slot::clip_factor);
    kernels::fill(clip, 1.0);
    kernels::fill(store.gradients(), 0.5);
    kernels::fill(store.weights(), 1.0);
  }
  int64_t copied() { return runtime.extension<HostSide>().bytes_copied(); }

  Runtime runtime;
  Toy model;
  ParameterStore store;
  StepScalars scalars;
};

// w = 1 - 0.1 * 0.5 in the ranges, in chunks that end anywhere; the rest stays.
TEST(HostUpdate, UpdatesItsRangesChunkByChunkAndNothingElse) {
  for (const int64_t chunk : {1, 7, 100, 1 << 20}) {
    for (const bool overlap : {true, false}) {
      HostRun run(DType::f64);
      OptimizerConfig config{.sgd_momentum = 0};
      config.optimizer_offload_chunk = chunk;
      config.overlap_cpu_optimizer_d2h_h2d = overlap;
      HostUpdate update(run.store, config, rule_called("sgd"), {{10, 200}, {300, 50}}, 0);
      update.begin(run.scalars);
      update.finish();
      const std::vector<double> weights = to_values(run.store.weights());
      for (int64_t i = 0; i < int64_t(weights.size()); ++i) {
        const bool owned = (i >= 10 && i < 210) || (i >= 300 && i < 350);
        ASSERT_DOUBLE_EQ(weights[size_t(i)], owned ? 0.95 : 1.0) << i << ", chunks of " << chunk;
      }
    }
  }
}

TEST(HostUpdate, GradientsAndWeightsTravelAndStatesStay) {
  HostRun run(DType::f32);
  OptimizerConfig config;
  config.optimizer_offload_chunk = 64;
  HostUpdate update(run.store, config, rule_called("adam"), {run.store.all()}, 0);
  const int64_t before = run.copied(), bytes = run.store.all().count * 4;
  update.begin(run.scalars);
  update.finish();
  // A gradient and a weight to the host, a weight back; and the step's scalars.
  EXPECT_EQ(run.copied() - before, 3 * bytes + kNumSlots * 8);
}

TEST(HostUpdate, MastersOfHalfPrecisionBeginAsTheWeights) {
  HostRun run(DType::f16);
  OptimizerConfig config;
  config.optimizer_offload_chunk = 100;
  HostUpdate update(run.store, config, rule_called("adam"), {{0, 300}}, 0);
  ASSERT_EQ(update.share().master.dtype(), DType::f32);
  EXPECT_EQ(to_values(update.share().master), std::vector<double>(300, 1.0));
  kernels::fill(run.store.weights(), 2.0);
  update.masters_from_weights();
  EXPECT_EQ(to_values(update.share().master), std::vector<double>(300, 2.0));
  for (const Tensor& state : update.share().states)
    EXPECT_EQ(to_values(state), std::vector<double>(300, 0.0));
}

TEST(HostUpdate, OwnsNothingWithoutRanges) {
  HostRun run(DType::f32);
  HostUpdate update(run.store, OptimizerConfig(), rule_called("adam"), {}, 0);
  const std::vector<double> before = to_values(run.store.weights());
  update.begin(run.scalars);
  update.finish();
  EXPECT_EQ(to_values(run.store.weights()), before);
}

// Where the state lies changes no bit on a cpu device.
TEST(HostUpdate, EqualsTheUpdateOnTheDevice) {
  const auto gradient = [](int64_t i) { return std::sin(double(i)); };
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    for (const double fraction : {1.0, 0.5}) {
      OptimizerConfig config = ToyRun::plain();
      ToyRun device(dtype, config);
      config.optimizer_cpu_offload = true;
      config.optimizer_offload_fraction = fraction;
      config.optimizer_offload_chunk = 90;
      ToyRun host(dtype, config);
      for (int64_t i = 1; i <= 3; ++i) {
        device.step(i, gradient, {.lr = 0.1, .weight_decay = 0.01});
        host.step(i, gradient, {.lr = 0.1, .weight_decay = 0.01});
      }
      EXPECT_EQ(to_values(host.store.weights()), to_values(device.store.weights()))
          << name(dtype) << " " << fraction;
    }
  }
}

}  // namespace
}  // namespace phx
