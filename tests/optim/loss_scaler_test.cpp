#include "phalanx/optim/loss_scaler.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

OptimizerConfig config() {
  OptimizerConfig result;
  result.initial_loss_scale = 1024;
  result.loss_scale_window = 3;
  result.hysteresis = 2;
  return result;
}

TEST(LossScaler, IsOneOutsideOfFp16) {
  LossScaler scaler(config(), /*fp16=*/false);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, HalvesOnlyWhenTheHysteresisIsUsedUp) {
  LossScaler scaler(config(), /*fp16=*/true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512.0);
  scaler.update(false);
  scaler.update(true);  // no full clean window in between: every further overflow halves
  EXPECT_EQ(scaler.scale(), 256.0);
}

TEST(LossScaler, DoublesAfterACleanWindowAndForgivesThen) {
  LossScaler scaler(config(), /*fp16=*/true);
  scaler.update(true);
  for (int i = 0; i < 3; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2048.0);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2048.0) << "the hysteresis is full again";
}

TEST(LossScaler, AnOverflowBeginsTheWindowAnew) {
  LossScaler scaler(config(), /*fp16=*/true);
  for (const bool overflow : {false, false, true, false, false}) scaler.update(overflow);
  EXPECT_EQ(scaler.scale(), 1024.0) << "two clean steps, an overflow, two clean steps";
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2048.0);
}

TEST(LossScaler, NeverFallsBelowTheMinimum) {
  OptimizerConfig c = config();
  c.initial_loss_scale = 2;
  LossScaler scaler(c, /*fp16=*/true);
  for (int i = 0; i < 9; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, AStaticScaleStays) {
  OptimizerConfig c = config();
  c.loss_scale = 128;
  LossScaler scaler(c, /*fp16=*/true);
  for (int i = 0; i < 9; ++i) scaler.update(i % 2 == 0);
  EXPECT_EQ(scaler.scale(), 128.0);
}

}  // namespace
}  // namespace phx
