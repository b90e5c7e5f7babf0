#include "phalanx/optim/schedule.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

// Expected values: Megatron's own (max 3e-4, min 3e-5, warm-up 100, decay 1000, WSD fall 200).
constexpr ScheduleLengths kLengths{.warmup = 100, .decay = 1000, .wsd_decay = 200, .total = 1000};

OptimizerConfig config(const std::string& style, WsdDecayStyle wsd = WsdDecayStyle::exponential) {
  OptimizerConfig result;
  result.lr = 3e-4;
  result.min_lr = 3e-5;
  result.lr_decay_style = style;
  result.lr_wsd_decay_style = wsd;
  return result;
}

void expect_rate(const OptimizerConfig& c, int64_t samples, double expected) {
  EXPECT_NEAR(learning_rate(c, kLengths, samples), expected, 1e-6 * expected)
      << samples;  // 7 digits given
}

TEST(Schedule, LinearDecayMatchesMegatron) {
  const auto c = config("linear");
  expect_rate(c, 50, 1.5e-4);
  expect_rate(c, 101, 2.997e-4);
  expect_rate(c, 550, 1.65e-4);
  expect_rate(c, 900, 6.0e-5);
  expect_rate(c, 1001, 3e-5);
}

TEST(Schedule, CosineDecayMatchesMegatron) {
  const auto c = config("cosine");
  expect_rate(c, 101, 2.999992e-4);
  expect_rate(c, 550, 1.65e-4);
  expect_rate(c, 900, 3.81415e-5);
}

TEST(Schedule, InverseSquareRootMatchesMegatron) {
  const auto c = config("inverse-square-root");
  expect_rate(c, 101, 2.985112e-4);
  expect_rate(c, 550, 1.279204e-4);
  expect_rate(c, 1000, 9.486833e-5);
  expect_rate(c, 1001, 3e-5);
}

TEST(Schedule, WarmupStableDecayMatchesMegatron) {
  const auto check = [](WsdDecayStyle style, double at850, double at900, double at950) {
    const auto c = config("WSD", style);
    expect_rate(c, 700, 3e-4);
    expect_rate(c, 850, at850);
    expect_rate(c, 900, at900);
    expect_rate(c, 950, at950);
  };
  check(WsdDecayStyle::linear, 2.325e-4, 1.65e-4, 9.75e-5);
  check(WsdDecayStyle::cosine, 2.604594e-4, 1.65e-4, 6.954058e-5);
  check(WsdDecayStyle::exponential, 2.140841e-4, 1.418377e-4, 8.108592e-5);
  check(WsdDecayStyle::minus_sqrt, 1.65e-4, 1.090812e-4, 6.617314e-5);
}

TEST(Schedule, ConstantStaysAtThePeakAfterWarmup) {
  const auto c = config("constant");
  expect_rate(c, 50, 1.5e-4);
  expect_rate(c, 5000, 3e-4);
}

TEST(Schedule, TheSecondLearningRateHasItsOwnEndsOnTheSameCurve) {
  auto c = config("linear");
  EXPECT_EQ(decoupled_learning_rate(c, kLengths, 550), learning_rate(c, kLengths, 550));
  c.decoupled_lr = 5e-4;
  c.decoupled_min_lr = 1e-4;
  EXPECT_NEAR(decoupled_learning_rate(c, kLengths, 50), 2.5e-4, 1e-15);
  EXPECT_NEAR(decoupled_learning_rate(c, kLengths, 550), 3e-4, 1e-15);
  EXPECT_EQ(decoupled_learning_rate(c, kLengths, 1001), 1e-4);
  expect_rate(c, 550, 1.65e-4);  // the first is as it was
  c.decoupled_min_lr = {};
  EXPECT_EQ(decoupled_learning_rate(c, kLengths, 1001), 3e-5) << "--min-lr holds for both";
}

TEST(Schedule, WeightDecayRisesFromStartToEnd) {
  OptimizerConfig c;
  c.start_weight_decay = 0.0;
  c.end_weight_decay = 0.4;
  c.weight_decay_incr_style = WeightDecayStyle::linear;
  EXPECT_DOUBLE_EQ(weight_decay(c, kLengths, 250), 0.1);
  EXPECT_DOUBLE_EQ(weight_decay(c, kLengths, 2000), 0.4);
  c.weight_decay_incr_style = WeightDecayStyle::cosine;
  EXPECT_NEAR(weight_decay(c, kLengths, 500), 0.2, 1e-15);
  EXPECT_DOUBLE_EQ(weight_decay(c, kLengths, 0), 0.0);
}

int64_t eight_each(int64_t iterations) { return 8 * iterations; }

TEST(Schedule, IterationsCountInSamples) {
  OptimizerConfig c;
  c.lr_warmup_iters = 10;
  c.lr_decay_iters = 100;
  const ScheduleLengths lengths = schedule_lengths(c, 12500, eight_each);
  EXPECT_EQ(lengths.total, 100000);
  EXPECT_EQ(lengths.warmup, 80);
  EXPECT_EQ(lengths.decay, 800);
  c.lr_warmup_iters = 0;
  c.lr_warmup_fraction = 0.25;
  EXPECT_EQ(schedule_lengths(c, 12500, eight_each).warmup, 200);
}

TEST(Schedule, ARunInSamplesDecaysOverAllOfThem) {
  OptimizerConfig c;
  c.lr_warmup_fraction = 0.07;
  const ScheduleLengths lengths = schedule_lengths(
      c, 3, [](int64_t n) { return 6 * n; }, 20);
  EXPECT_EQ(lengths.total, 20) << "three batches of 6, and 2 samples that fill none";
  EXPECT_EQ(lengths.decay, 20);
  EXPECT_DOUBLE_EQ(lengths.warmup, 0.07 * 20) << "a fraction, as in Megatron";
  c.lr_decay_samples = 15;
  EXPECT_EQ(schedule_lengths(
                c, 3, [](int64_t n) { return 6 * n; }, 20)
                .decay,
            15);
}

TEST(Schedule, IterationsOfGrowingBatchesCountTheSamplesTheyHave) {
  const auto samples_after = [](int64_t n) { return n <= 10 ? 4 * n : 40 + 8 * (n - 10); };
  OptimizerConfig c;
  c.lr_warmup_iters = 5;
  c.lr_wsd_decay_iters = 12;
  const ScheduleLengths lengths = schedule_lengths(c, 20, samples_after);
  EXPECT_EQ(lengths.total, 120);
  EXPECT_EQ(lengths.decay, 120);
  EXPECT_EQ(lengths.warmup, 20);
  EXPECT_EQ(lengths.wsd_decay, 88) << "iterations 9 to 20: 2 x 4 + 10 x 8";
}

TEST(Schedule, RefusesAWarmupLongerThanTheDecay) {
  OptimizerConfig c;
  c.lr_warmup_iters = 100;
  c.lr_decay_iters = 100;
  EXPECT_THROW(schedule_lengths(c, 12500, eight_each), Error);
}

// Warm-up is the same for every schedule; then an own one has the word.
TEST(LearningRate, OwnSchedulesAreAskedAfterTheWarmUp) {
  std::vector<LrSchedule> schedules = standard_lr_schedules();
  schedules.push_back({"half", "half of the way", [](const LrPoint& point, const OwnOptions&) {
                         return 0.5 * (point.most + point.least) + 1e-9 * point.progress();
                       }});
  auto c = config("half");
  const double half = 0.5 * (*c.lr + c.min_lr);
  EXPECT_NEAR(learning_rate(c, kLengths, 550, schedules), half + 0.5e-9, 1e-15);
  EXPECT_EQ(learning_rate(c, kLengths, 50, schedules),
            learning_rate(config("linear"), kLengths, 50, schedules));
  c.decoupled_lr = 4 * *c.lr;
  c.decoupled_min_lr = 0;
  EXPECT_NEAR(decoupled_learning_rate(c, kLengths, 1000, schedules), 2 * *c.lr + 1e-9, 1e-15);
  EXPECT_THROW(learning_rate(c, kLengths, 550), Error) << "the standard ones have no such name";
}

}  // namespace
}  // namespace phx
