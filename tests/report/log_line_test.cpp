#include "phalanx/report/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace phx {
namespace {

using ::testing::HasSubstr;

const IterationReport kReport = {.iteration = 1,
                                 .train_iterations = 100000,
                                 .consumed_samples = 256,
                                 .milliseconds = 1234.5,
                                 .tflops_per_gpu = 412.3,
                                 .learning_rate = 3e-5,
                                 .global_batch_size = 256,
                                 .losses = {{"lm loss", 10.34567}},
                                 .grad_norm = 2.345};

TEST(LogLine, IsMegatrons) {
  EXPECT_EQ(
      log_line(kReport, "2026-08-22 12:00:00.000000"),
      " [2026-08-22 12:00:00.000000] iteration        1/  100000 | consumed samples:          "
      "256 | elapsed time per iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 412.3 "
      "| learning rate: 3.000000E-05 | global batch size:   256 | lm loss: 1.034567E+01 | "
      "loss scale: 1.0 | grad norm: 2.345 | number of skipped iterations:   0 | number of nan "
      "iterations:   0 |");
}

TEST(LogLine, OptionalFieldsStandWhereMegatronHasThem) {
  IterationReport report = kReport;
  report.skipped_samples = 12;
  report.tflops_per_gpu = {};
  report.joules_per_gpu = 700.;
  report.watts_per_gpu = 650.25;
  report.losses = {{"lm loss", 2.}, {"z_loss", 0.001}, {"hidden", -1.}};
  report.num_zeros = 5;
  report.params_norm = 1.5;
  report.tokens_per_second = 1234.56;
  report.mfu = 0.4123;
  EXPECT_EQ(
      log_line(report, "t"),
      " [t] iteration        1/  100000 | consumed samples:          256 | skipped samples:   "
      "        12 | elapsed time per iteration (ms): 1234.5 | energy per GPU (J/iter/GPU): "
      "700.0 | power per GPU (W/GPU): 650.2 | learning rate: 3.000000E-05 | global batch size:"
      "   256 | lm loss: 2.000000E+00 | z_loss: 1.000000E-03 | loss scale: 1.0 | grad norm: "
      "2.345 | num zeros: 5 | params norm: 1.500 | number of skipped iterations:   0 | number "
      "of nan iterations:   0 | tokens per second: 1234.6 | MFU: 41.2% |");
}

// Losses stand beside those of the model, what else routers say at the end.
TEST(LogLine, RoutersAreTold) {
  IterationReport report = kReport;
  report.routers = RouterReport{
      .most = 1.5, .fewest = 0.254, .entropy = 1.3333, .losses = {{"load_balancing_loss", 1.25}}};
  report.router_layers = {{3, RouterReport{.most = 7}}};  // for files alone
  const std::string line = log_line(report, "t");
  EXPECT_THAT(line, HasSubstr(" lm loss: 1.034567E+01 | load_balancing_loss: 1.250000E+00 | "));
  EXPECT_TRUE(
      line.ends_with(" number of nan iterations:   0 | expert load: 0.25 to 1.50 of the "
                     "mean | router entropy: 1.333 |"))
      << line;
  report.routers->dropped = 0.125;
  EXPECT_TRUE(log_line(report, "t").ends_with(" router entropy: 1.333 | dropped: 12.50% |"));
}

TEST(LogLine, ASecondLearningRateStandsBehindTheFirst) {
  IterationReport report = kReport;
  report.decoupled_learning_rate = 5e-4;
  EXPECT_THAT(log_line(report, "t"),
              HasSubstr(" learning rate: 3.000000E-05 | decoupled learning rate: 5.000000E-04 | "
                        "global batch size:"));
}

TEST(LogLine, ANanLossIsShown) {
  IterationReport report = kReport;
  report.losses = {{"lm loss", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_THAT(log_line(report, "t"), HasSubstr(" lm loss: NAN |"));
}

TEST(LogLine, ValidationStandsBetweenDashes) {
  const std::string text = validation_block({.iteration = 1000, .losses = {{"lm loss", 2.345678}}});
  // exp(2.345678) = 10.440347
  const std::string line =
      " validation loss at iteration 1000 | lm loss value: 2.345678E+00 | lm loss PPL: "
      "1.044035E+01 | ";
  const std::string dashes(line.size(), '-');
  EXPECT_EQ(text, dashes + "\n" + line + "\n" + dashes);
}

TEST(LogLine, TheFinalValidationNamesItsSet) {
  EXPECT_THAT(
      validation_block({.iteration = 7, .losses = {{"lm loss", 30.}}, .where = "on test set"}),
      HasSubstr(" validation loss at iteration 7 on test set | lm loss value: 3.000000E+01 "
                "| lm loss PPL: 4.851652E+08 | "));  // exp(20), not exp(30)
}

TEST(LogLine, TimeStampsHaveMicroseconds) {
  const std::chrono::system_clock::time_point time{std::chrono::microseconds(1000042)};
  const std::string text = time_stamp(time);
  EXPECT_EQ(text.size(), 26u);
  EXPECT_EQ(text.substr(17), "01.000042");  // no time zone has odd seconds
}

}  // namespace
}  // namespace phx
