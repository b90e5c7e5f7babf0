#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/catalogue_facts.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

TEST(MegatronCatalogueTasks, NamesAreThereOnceAndStandForNoOption) {
  expect_sound(other_task_catalogue());
  expect_sound(other_model_catalogue());
}

TEST(MegatronCatalogueTasks, FlagsOfOtherTasksAreRefusedByWhatTheyBelongTo) {
  EXPECT_THAT(told({"--mask-prob", "0.15"}), HasSubstr("it belongs to BERT, T5"));
  EXPECT_THAT(told({"--img-h", "224"}), HasSubstr("it belongs to models of images"));
  EXPECT_THAT(told({"--perform-rl-step"}), HasSubstr("reinforcement learning is not"));
  EXPECT_EQ(told({"--vocab-extra-ids", "0"}).find("BERT"), std::string::npos) << "0 holds anyway";
}

}  // namespace
}  // namespace phx
