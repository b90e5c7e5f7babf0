#include "phalanx/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "phalanx/checkpoint/checkpoint_folder.h"
#include "support/gradients.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

struct Ran {
  RunEnd end;
  RunState state;
  std::vector<char> bytes;
  double loss;
};

Ran run(const RunConfig& config) {
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  Ran ran;
  {
    Terminal terminal(nowhere, nowhere, TerminalMode::plain);
    Trainer trainer(session, terminal, {.measures_peak = false});
    ran.end = trainer.run();
    ran.state = trainer.state();
    ran.loss = trainer.last_loss();
  }
  std::fclose(nowhere);
  ran.bytes = state_bytes(session);
  return ran;
}

// A field of every iteration in a metrics file.
std::vector<int64_t> logged(const Path& metrics, const char* field) {
  std::vector<int64_t> values;
  std::ifstream lines(metrics);
  for (std::string line; std::getline(lines, line);)
    values.push_back(nlohmann::json::parse(line).at(field).get<int64_t>());
  return values;
}

RunConfig with_schedule(int64_t iterations) {
  RunConfig config = tiny_run();
  config.train.train_iters = iterations;
  config.optim.lr_decay_style = "cosine";
  config.optim.lr_decay_iters = 20;
  config.optim.lr_warmup_iters = 3;
  config.train.eval_interval = 5;
  config.train.eval_iters = 1;
  return config;
}

TEST(Trainer, TwentyIterationsEqualTenSavedAndTenResumed) {
  for (bool bf16 : {false, true}) {
    const TempFolder folder;
    RunConfig whole = with_schedule(20), first = with_schedule(20), second = with_schedule(20);
    whole.train.bf16 = first.train.bf16 = second.train.bf16 = bf16;
    first.train.exit_interval = 10;
    first.train.save = folder.path();
    second.train.load = folder.path();
    const Ran all = run(whole);
    EXPECT_EQ(run(first).end, RunEnd::stopped_early);
    const Ran resumed = run(second);
    EXPECT_EQ(resumed.state.iteration, 20);
    EXPECT_EQ(resumed.state.consumed_samples, 120);
    EXPECT_TRUE(all.bytes == resumed.bytes) << "bf16: " << bf16;
    EXPECT_EQ(all.loss, resumed.loss);
    EXPECT_EQ(all.state.consumed_valid_samples, resumed.state.consumed_valid_samples);
  }
}

TEST(Trainer, ValidationGoesOnWhereTheCheckpointLeftIt) {
  const TempFolder folder;
  RunConfig whole = with_schedule(10), first = with_schedule(10), second = with_schedule(10);
  for (RunConfig* config : {&whole, &first, &second}) {
    config->train.save = (folder / "a").string();
    config->train.save_interval = 5;  // the same iterations as the evaluations
    config->train.metrics_file = (folder / "metrics").string();
  }
  whole.train.save = (folder / "b").string();
  whole.train.metrics_file = (folder / "whole").string();
  first.train.exit_interval = 5;
  second.train.load = second.train.save;
  run(whole);
  run(first);
  run(second);
  EXPECT_EQ(read_losses(folder / "whole").validation, read_losses(folder / "metrics").validation);
  EXPECT_EQ(read_losses(folder / "whole").train, read_losses(folder / "metrics").train);
}

TEST(Trainer, SchedulesThatCountOtherSamplesAreRefused) {
  const TempFolder folder;
  RunConfig first = with_schedule(20), second = with_schedule(20);
  first.train.exit_interval = 3;
  first.train.save = folder.path();
  run(first);
  second.train.load = folder.path();
  second.train.global_batch_size = 2;  // the same iterations are a third of the samples
  const std::string error = testing::error_of([&] { run(second); });
  EXPECT_NE(error.find("decay: 120 samples in the checkpoint, 40 now"), std::string::npos) << error;
  EXPECT_NE(error.find("warm-up: 18 samples in the checkpoint, 6 now"), std::string::npos);
  // Given in samples they are the same curves.
  second.optim.lr_warmup_iters = 0;
  second.optim.lr_decay_iters = {};
  second.optim.lr_warmup_samples = 18;
  second.optim.lr_decay_samples = 120;
  second.train.train_iters = 4;
  EXPECT_EQ(run(second).state.iteration, 4);
}

TEST(Trainer, AnotherBatchSizeGoesOnWithTheNextSample) {
  const TempFolder folder;
  RunConfig first = with_schedule(20), second = with_schedule(20);
  first.train.exit_interval = 3;  // 18 samples
  first.train.save = folder.path();
  run(first);
  second.train.load = folder.path();
  second.train.global_batch_size = 2;
  second.train.train_iters = 6;
  second.optim.override_opt_param_scheduler = true;
  EXPECT_EQ(run(second).state.consumed_samples, 18 + 3 * 2);
}

// 4 samples a step, and 8 from the fourth step on; a sample has 24 tokens.
RunConfig growing_batches() {
  RunConfig config = tiny_run();
  config.train.global_batch_size = {};
  config.train.step_batch_size_schedule = "0:4 288:8";
  config.train.train_iters = 6;
  config.optim.lr_decay_style = "constant";
  return config;
}

TEST(Trainer, AGrowingBatchEqualsARunOfEachSize) {
  const TempFolder folder;
  RunConfig growing = growing_batches(), small = growing_batches(), large = growing_batches();
  growing.train.metrics_file = (folder / "growing").string();
  small.train.metrics_file = large.train.metrics_file = (folder / "fixed").string();
  small.train.step_batch_size_schedule = large.train.step_batch_size_schedule = "";
  small.train.global_batch_size = 4;
  large.train.global_batch_size = 8;
  small.train.train_iters = 3;
  small.train.save = large.train.load = (folder / "a").string();
  const Ran all = run(growing);
  run(small);
  const Ran second = run(large);
  EXPECT_EQ(all.state.consumed_samples, 3 * 4 + 3 * 8);
  EXPECT_EQ(all.state.scheduled_samples, 36);
  EXPECT_EQ(second.state.consumed_samples, 36);
  EXPECT_EQ(read_losses(folder / "growing").train, read_losses(folder / "fixed").train);
  EXPECT_TRUE(all.bytes == second.bytes);
  EXPECT_EQ(logged(folder / "growing", "global batch size"),
            (std::vector<int64_t>{4, 4, 4, 8, 8, 8}));
  EXPECT_EQ(logged(folder / "growing", "consumed samples"),
            (std::vector<int64_t>{4, 8, 12, 20, 28, 36}));
}

TEST(Trainer, AGrowingBatchResumesToTheByteBeforeAtAndAfterTheChange) {
  RunConfig whole = growing_batches();
  whole.optim.lr_decay_style = "cosine";
  whole.optim.lr_warmup_iters = 2;
  const Ran all = run(whole);
  for (int64_t stop : {2, 3, 4}) {
    const TempFolder folder;
    RunConfig first = whole, second = whole;
    first.train.exit_interval = stop;
    first.train.save = second.train.load = folder.path();
    run(first);
    const Ran resumed = run(second);
    EXPECT_EQ(resumed.state.consumed_samples, 36);
    EXPECT_TRUE(all.bytes == resumed.bytes) << "stopped after " << stop;
  }
}

TEST(Trainer, ARunInSamplesOfGrowingBatchesEndsWithAWholeOne) {
  RunConfig config = growing_batches();
  config.train.train_iters = {};
  config.train.train_samples = 35;
  config.train.eval_interval = 100;
  config.train.eval_iters = 3;
  const Ran ran = run(config);
  EXPECT_EQ(ran.state.iteration, 5);
  EXPECT_EQ(ran.state.consumed_samples, 28);
  EXPECT_EQ(ran.state.consumed_valid_samples, 3 * 8) << "the largest batch, all the run long";
}

TEST(Trainer, ADecreasedBatchTrainsWhatFits) {
  RunConfig config = tiny_run();
  config.train.global_batch_size = 7;  // 2 a micro-batch
  config.train.decrease_batch_size_if_needed = true;
  config.train.train_iters = 3;
  EXPECT_EQ(run(config).state.consumed_samples, 18);
}

TEST(Trainer, ACheckpointWithoutOptimizerStateIsRefusedUnlessToldNotToLoadIt) {
  const TempFolder folder;
  RunConfig first = tiny_run(), second = tiny_run();
  first.train.train_iters = 2;
  first.train.save = folder.path();
  first.train.save_optim = false;
  run(first);
  second.train.train_iters = 3;
  second.train.load = folder.path();
  second.optim.override_opt_param_scheduler = true;
  const std::string error = error_of([&] { run(second); });
  EXPECT_NE(error.find("holds no optimizer state"), std::string::npos) << error;
  EXPECT_NE(error.find("--no-load-optim"), std::string::npos) << error;
  second.train.load_optim = false;
  EXPECT_EQ(run(second).state.iteration, 3);
}

TEST(Trainer, FinetuningStartsWithTheConfiguredLossScale) {
  const TempFolder folder;
  RunConfig first = tiny_run(), second = tiny_run();
  first.train.fp16 = second.train.fp16 = true;
  first.train.train_iters = 2;
  second.train.train_iters = 1;
  first.train.save = folder.path();
  run(first);
  second.train.load = folder.path();
  second.train.finetune = true;
  second.optim.initial_loss_scale = 512;
  EXPECT_EQ(run(second).state.scaler->scale, 512);
  second.train.finetune = false;
  second.train.train_iters = 3;
  second.optim.override_opt_param_scheduler = true;
  second.optim.loss_scale = 128;
  second.train.metrics_file = (folder / "metrics").string();
  EXPECT_FALSE(run(second).state.scaler) << "a fixed scale is the flag's";
  EXPECT_EQ(logged(folder / "metrics", "loss scale"), std::vector<int64_t>{128});
}

TEST(Trainer, ACheckpointWithoutALossScaleGoesOnWithTheConfiguredOne) {
  const TempFolder folder;
  RunConfig first = tiny_run(), second = tiny_run();
  first.train.bf16 = second.train.fp16 = true;
  first.train.train_iters = 2;
  first.train.save = folder.path();
  EXPECT_FALSE(run(first).state.scaler);
  second.train.load = folder.path();
  second.train.load_optim = false;  // other masters
  second.train.train_iters = 3;
  second.optim.override_opt_param_scheduler = true;
  second.optim.initial_loss_scale = 512;
  second.optim.hysteresis = 7;
  const RunState state = run(second).state;
  EXPECT_EQ(state.iteration, 3);
  ASSERT_TRUE(state.scaler);
  EXPECT_EQ(state.scaler->scale, 512);
  EXPECT_EQ(state.scaler->hysteresis_left, 7);
}

TEST(Trainer, WeightsOfAnotherPrecisionCanBeFinetuned) {
  const TempFolder folder;
  RunConfig first = tiny_run(), second = tiny_run();
  first.train.train_iters = 2;
  first.train.save = folder.path();
  run(first);
  second.train.load = folder.path();
  second.train.bf16 = second.train.finetune = true;
  second.train.train_iters = 1;
  EXPECT_EQ(run(second).state.iteration, 1);
  second.train.finetune = false;
  second.train.train_iters = 2;
  EXPECT_NE(testing::error_of([&] { run(second); }).find("the file has F32"), std::string::npos);
}

// The optimizer has masters of its own in 16 bits: an update must not bring back the initial
// weights.
TEST(Trainer, FinetuningUpdatesTheLoadedWeights) {
  const TempFolder folder;
  RunConfig first = tiny_run();
  first.train.train_iters = 2;
  first.train.save = folder.path();
  run(first);
  for (const bool fp16 : {false, true}) {
    RunConfig second = tiny_run();
    second.train.load = folder.path();
    second.train.finetune = true;
    (fp16 ? second.train.fp16 : second.train.bf16) = true;
    second.train.train_iters = 1;
    second.optim.loss_scale = 1;  // no step is skipped
    second.optim.lr = 1e-9;
    second.optim.weight_decay = 0;
    Runtime runtime({.threads = 2});
    Session session(second, runtime.device());
    const std::vector<double> initial = to_values(session.store.weights());
    std::FILE* nowhere = std::fopen("/dev/null", "w");
    {
      Terminal terminal(nowhere, nowhere, TerminalMode::plain);
      Trainer trainer(session, terminal, {.measures_peak = false});
      const std::vector<double> loaded = to_values(session.store.weights());
      EXPECT_NE(loaded, initial);
      trainer.run();
      EXPECT_EQ(trainer.state().updates, 1);
      EXPECT_EQ(to_values(session.store.weights()), loaded) << (fp16 ? "fp16" : "bf16");
    }
    std::fclose(nowhere);
  }
}

TEST(Trainer, AResumedRunMustBeTheSameModelAndSchedule) {
  const TempFolder folder;
  RunConfig first = tiny_run(), second = tiny_run();
  first.train.train_iters = 2;
  first.train.save = folder.path();
  first.json = R"({"rotary_base": 10000.0, "lr": 0.003, "seq_length": 24, "train_iters": 20})";
  run(first);
  second.train.load = folder.path();
  second.json = R"({"rotary_base": 500000.0, "lr": 0.001, "seq_length": 48})";
  const std::string message = testing::error_of([&] { run(second); });
  EXPECT_NE(message.find("--rotary-base: 10000.0 in the checkpoint, 500000.0 now"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("--lr: 0.003 in the checkpoint, 0.001 now"), std::string::npos) << message;
  EXPECT_EQ(message.find("--seq-length"), std::string::npos) << message;
  // Weights of another model are no good, also where weights are all that is wanted.
  EXPECT_EQ(message.find("--finetune"), std::string::npos) << message;
  EXPECT_NE(message.find("hint: its weights fit the model that they were trained for"),
            std::string::npos)
      << message;
  second.json =
      R"({"rotary_base": 10000.0, "lr": 0.003, "train_iters": 40, "lr_decay_style": "linear"})";
  const std::string longer = testing::error_of([&] { run(second); });
  EXPECT_NE(longer.find("which the learning rate follows: 20 in the checkpoint, 40 now"),
            std::string::npos)
      << longer;
  EXPECT_NE(longer.find("--finetune to take weights only"), std::string::npos) << longer;
  first.json = R"({"lr": 0.003, "decoupled_lr": 0.01})";
  run(first);
  second.json = R"({"lr": 0.003, "decoupled_lr": null})";
  const std::string second_rate = testing::error_of([&] { run(second); });
  EXPECT_NE(second_rate.find("--decoupled-lr: 0.01 in the checkpoint, unset now"),
            std::string::npos)
      << second_rate;
  second.json = R"({"rotary_base": 10000.0, "lr": 0.001})";
  second.optim.override_opt_param_scheduler = true;
  EXPECT_EQ(run(second).state.iteration, 20);
}

TEST(Trainer, ANanLossStopsFp16Too) {
  RunConfig config = tiny_run();
  config.train.fp16 = true;
  config.optim.initial_loss_scale = 1024;
  config.optim.lr = 1e30;
  const std::string message = testing::error_of([&] { run(config); });
  EXPECT_NE(message.find("the loss is"), std::string::npos) << message;
}

TEST(Trainer, ALossThatIsNotFiniteStopsTheRunAndNamesTheLastGoodState) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.optim.lr = 1e30;
  config.optim.clip_grad = 0;
  config.train.save = folder.path();
  const std::string message = testing::error_of([&] { run(config); });
  EXPECT_NE(message.find("the gradient norm"), std::string::npos) << message;
  EXPECT_NE(message.find("the last good state is iteration"), std::string::npos) << message;
  const auto saved = latest_checkpoint(folder.path());
  ASSERT_TRUE(saved.has_value());
  EXPECT_NE(message.find(checkpoint_path(folder.path(), *saved).string()), std::string::npos)
      << message;
}

TEST(Trainer, ASignalSavesAndStops) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.train.train_iters = 100000;
  config.train.save = folder.path();
  Runtime runtime({.threads = 1});
  Session session(config, runtime.device());
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  {
    Terminal terminal(nowhere, nowhere, TerminalMode::plain);
    Trainer trainer(session, terminal);
    std::raise(SIGTERM);
    EXPECT_EQ(trainer.run(), RunEnd::stopped_by_signal);
    EXPECT_EQ(latest_checkpoint(folder.path()), trainer.state().iteration);
  }
  std::fclose(nowhere);
}

TEST(Trainer, DynamicLossScaleComesDownFromItsStartAndTheRunLearns) {
  RunConfig config = tiny_run();
  config.train.fp16 = true;
  config.train.train_iters = 40;
  const Ran ran = run(config);
  EXPECT_EQ(ran.state.iteration, 40);
  EXPECT_GT(ran.state.skipped_iterations, 0) << "2^32 overflows f16";
  EXPECT_LT(ran.state.scaler->scale, 4294967296.0);
  EXPECT_EQ(ran.state.updates, 40 - ran.state.skipped_iterations);
  EXPECT_LT(ran.loss, 4.0);  // ln 61 = 4.11 at the start
}

// The largest change of a weight in the first `iterations`.
double largest_change(const RunConfig& run, int64_t iterations) {
  RunConfig config = run;
  config.train.train_iters = iterations;
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  const std::vector<double> before = to_values(session.store.weights());
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  {
    Terminal terminal(nowhere, nowhere, TerminalMode::plain);
    Trainer trainer(session, terminal, {.measures_peak = false});
    trainer.run();
  }
  std::fclose(nowhere);
  const std::vector<double> after = to_values(session.store.weights());
  double most = 0;
  for (size_t i = 0; i < before.size(); ++i) most = std::max(most, std::abs(after[i] - before[i]));
  return most;
}

RunConfig without_decay() {
  RunConfig config = tiny_run();
  config.optim.weight_decay = 0;
  config.optim.lr_decay_style = "constant";
  config.optim.lr_decay_iters = 20;
  return config;
}

// With fresh moments Adam's first update is the learning rate times the sign of the gradient. Were
// skipped steps counted, the fourth one would be 0.58 of it.
TEST(Trainer, TheFirstUpdateBehindSkippedOnesIsAdamsFirst) {
  RunConfig config = without_decay();
  config.optim.lr = 0.01;
  config.train.fp16 = true;
  config.optim.initial_loss_scale = 0x1p22;
  config.optim.hysteresis = 1;
  int64_t iterations = 1;
  double change = 0;
  for (; change == 0 && iterations < 40; ++iterations) change = largest_change(config, iterations);
  EXPECT_GE(iterations, 4) << "2^22 overflows f16 in several steps";
  EXPECT_NEAR(change, 0.01, 0.001);
}

// As in Megatron the first step of a warm-up from zero has the learning rate zero.
TEST(Trainer, TheLearningRateOfAStepIsThatOfTheSamplesBeforeIt) {
  RunConfig config = without_decay();
  config.optim.lr = 0.01;
  config.optim.lr_warmup_iters = 4;
  EXPECT_EQ(largest_change(config, 1), 0);
  EXPECT_NEAR(largest_change(config, 2), 0.01 / 4, 0.01 / 40);
}

}  // namespace
}  // namespace phx
