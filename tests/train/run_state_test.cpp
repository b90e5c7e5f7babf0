#include "phalanx/train/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(RunState, ComesBackFromItsText) {
  RunState state{.iteration = 7,
                 .consumed_samples = 42,
                 .scheduled_samples = 36,
                 .updates = 6,
                 .consumed_valid_samples = 12,
                 .skipped_iterations = 1};
  for (const bool scaled : {false, true}) {
    if (scaled) state.scaler = {512, 3, 2};
    const RunState back = RunState::from_json(state.to_json());
    EXPECT_EQ(back.iteration, 7);
    EXPECT_EQ(back.consumed_samples, 42);
    EXPECT_EQ(back.scheduled_samples, 36);
    EXPECT_EQ(back.updates, 6);
    EXPECT_EQ(back.consumed_valid_samples, 12);
    EXPECT_EQ(back.skipped_iterations, 1);
    ASSERT_EQ(back.scaler.has_value(), scaled);
    if (scaled) {
      EXPECT_EQ(back.scaler->scale, 512);
      EXPECT_EQ(back.scaler->growth, 3);
      EXPECT_EQ(back.scaler->hysteresis_left, 2);
    }
  }
}

TEST(RunState, ATextThatLacksACounterIsAnError) {
  EXPECT_THAT(error_of([] { RunState::from_json("{\"iteration\": 3}"); }),
              HasSubstr("the training state is broken"));
}

}  // namespace
}  // namespace phx
