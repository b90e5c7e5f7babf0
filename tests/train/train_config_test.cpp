#include "phalanx/train/train_config.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"
#include "phalanx/base/options.h"
#include "phalanx/train/batch_schedule.h"
#include "phalanx/train/train_fields.h"

namespace phx {
namespace {

Problems parse(std::vector<std::string> extra, TrainConfig* out = nullptr) {
  std::vector<std::string> args = {"--micro-batch-size", "4"};
  args.insert(args.end(), extra.begin(), extra.end());
  TrainConfig config;
  OptionSet options;
  options.add("Run", config);
  ParseReport report = options.parse(args);
  options.check(train_rules(), report);
  if (out != nullptr) *out = config;
  return report.problems;
}

TEST(TrainConfig, TheGlobalBatchDefaultsToOneMicroBatchARank) {
  TrainConfig config;
  config.micro_batch_size = 4;
  EXPECT_EQ(config.global_batch(), 4);
  EXPECT_EQ(config.global_batch(8), 32);
  config.global_batch_size = 64;
  EXPECT_EQ(config.num_micro_batches(), 16);
  EXPECT_EQ(config.num_micro_batches(2), 8);
  config.global_batch_size = 66;
  EXPECT_THROW(config.num_micro_batches(), Error);
}

TEST(TrainConfig, ARunCountedInSamplesHasWholeBatches) {
  TrainConfig config;
  config.micro_batch_size = 4;
  config.global_batch_size = 8;
  config.train_samples = 1001;
  const BatchSchedule batches = config.batch_schedule(24, 1);
  EXPECT_EQ(config.iterations(batches), 125);
  config.train_iters = 7;
  EXPECT_EQ(config.iterations(batches), 7);
}

TEST(TrainConfig, ABatchThatDoesNotFitIsRoundedDownWhenToldTo) {
  TrainConfig config;
  config.micro_batch_size = 4;
  config.global_batch_size = 66;
  config.decrease_batch_size_if_needed = true;
  EXPECT_EQ(config.global_batch(2), 64);
  EXPECT_EQ(config.num_micro_batches(2), 8);
  EXPECT_EQ(config.global_batch(3), 60);
  config.resolve(3);
  EXPECT_EQ(config.global_batch_size, 66) << "another number of ranks may have more of it";
}

TEST(TrainConfig, ABatchScheduleHasTheSizes) {
  TrainConfig config;
  EXPECT_TRUE(
      parse({"--train-iters", "1", "--step-batch-size-schedule", "0:8 1K:16"}, &config).empty());
  EXPECT_EQ(config.num_micro_batches(2), 2) << "of the largest";
  config.resolve(2);
  EXPECT_EQ(config.global_batch_size, std::nullopt);
  EXPECT_EQ(parse({"--train-iters", "1", "--step-batch-size-schedule", "0:8", "--global-batch-size",
                   "8"})[0]
                .text,
            "--step-batch-size-schedule 0:8 and --global-batch-size 8 exclude each other: a "
            "schedule has all sizes");
  EXPECT_EQ(parse({"--train-iters", "1", "--step-batch-size-schedule", "0:8",
                   "--decrease-batch-size-if-needed"})[0]
                .text,
            "--step-batch-size-schedule 0:8 and --decrease-batch-size-if-needed exclude each "
            "other: a schedule's sizes stay as they are");
  EXPECT_EQ(parse({"--train-iters", "1", "--step-batch-size-schedule", "0-8"})[0].text,
            "--step-batch-size-schedule: \"0-8\" is not TOKENS:SIZE");
}

TEST(TrainConfig, ARunHasOneLengthAndOnePrecision) {
  EXPECT_EQ(parse({})[0].text,
            "one of --train-iters and --train-samples is required: a run has one length");
  EXPECT_EQ(parse({"--train-iters", "1", "--train-samples", "8"}).size(), 1u);
  EXPECT_EQ(parse({"--train-iters", "1", "--fp16", "--bf16"})[0].text,
            "--bf16 and --fp16 exclude each other: a run has one precision");
}

TEST(TrainConfig, PrecisionFollowsTheSwitches) {
  TrainConfig config;
  EXPECT_EQ(config.precision(), Precision::fp32);
  parse({"--train-iters", "1", "--bf16"}, &config);
  EXPECT_EQ(config.precision(), Precision::bf16);
  parse({"--train-iters", "1", "--fp64"}, &config);
  EXPECT_EQ(config.precision(), Precision::fp64);
  EXPECT_EQ(parse({"--train-iters", "1", "--fp64", "--device", "cuda"}).size(), 1u);
}

TEST(TrainConfig, RecomputeActivationsMeansSelectiveAttention) {
  TrainConfig config;
  EXPECT_TRUE(parse({"--train-iters", "1", "--recompute-activations"}, &config).empty());
  EXPECT_TRUE(config.recompute_core_attention());
  config.resolve();
  EXPECT_EQ(config.recompute_modules, std::vector<std::string>{"core_attn"});
  parse({"--train-iters", "1", "--recompute-activations", "--recompute-modules", "mlp"}, &config);
  EXPECT_FALSE(config.recompute_core_attention());
}

TEST(TrainConfig, FullRecomputeHasAMethodAndANumber) {
  EXPECT_EQ(parse({"--train-iters", "1", "--recompute-granularity", "full"}).size(), 2u);
  EXPECT_TRUE(parse({"--train-iters", "1", "--recompute-granularity", "full", "--recompute-method",
                     "block", "--recompute-num-layers", "2"})
                  .empty());
  EXPECT_EQ(parse({"--train-iters", "1", "--recompute-num-layers", "2"})[0].text,
            "--recompute-num-layers 2 needs --recompute-granularity full");
  EXPECT_EQ(parse({"--train-iters", "1", "--recompute-keep-attention"}).at(0).text,
            "--recompute-keep-attention needs --recompute-granularity full");
  EXPECT_EQ(parse({"--train-iters", "1", "--recompute-modules", "mlp"}).size(), 1u);
}

TEST(TrainConfig, SavingNeedsAnInterval) {
  EXPECT_EQ(parse({"--train-iters", "1", "--save", "x"})[0].text,
            "--save x requires --save-interval: it says how often");
  EXPECT_TRUE(
      parse({"--train-iters", "1", "--save", "x", "--persistent-save-interval", "5"}).empty());
  EXPECT_EQ(parse({"--train-iters", "1", "--save", "x", "--save-interval", "5",
                   "--save-retain-interval", "12"})[0]
                .hint,
            "10 and 15 are the nearest that are");
}

TEST(TrainConfig, AbsurdCountsAreRefused) {
  EXPECT_EQ(parse({"--train-iters", "1", "--threads", "4097"})[0].text,
            "--threads 4097 should be between 0 and 4096");
  EXPECT_EQ(parse({"--train-iters", "2147483648"})[0].text,
            "--train-iters 2147483648 should be between 0 and 2147483647");
  EXPECT_EQ(parse({"--train-samples", "1000000000000001"})[0].text,
            "--train-samples 1000000000000001 should be between 1 and 1e+15");
}

TEST(TrainConfig, OffSwitchesKeepMegatronsNames) {
  TrainConfig config;
  EXPECT_TRUE(parse({"--train-iters", "1", "--no-save-optim", "--no-load-optim", "--no-arena",
                     "--no-check-for-nan-in-loss-and-grad"},
                    &config)
                  .empty());
  EXPECT_FALSE(config.save_optim || config.load_optim || config.arena ||
               config.check_for_nan_in_loss_and_grad);
}

}  // namespace
}  // namespace phx
