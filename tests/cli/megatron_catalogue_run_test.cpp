#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/catalogue_facts.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

TEST(MegatronCatalogueRun, NamesAreThereOnceAndStandForNoOption) { expect_sound(run_catalogue()); }

TEST(MegatronCatalogueRun, ARefusedFlagIsTakenWithTheValueThatHoldsAnyway) {
  EXPECT_THAT(told({"--exit-signal", "SIGKILL"}),
              HasSubstr("are the signals that are listened to"));
  EXPECT_EQ(told({"--exit-signal", "SIGTERM"}).find("listened"), std::string::npos);
  EXPECT_THAT(told({"--cuda-graph-impl", "local"}), HasSubstr("CUDA graphs are not in this build"));
  EXPECT_EQ(told({"--cuda-graph-impl", "none"}).find("CUDA graphs"), std::string::npos);
  EXPECT_EQ(told({"--rampup-batch-size", "16", "16", "1000"}), "implied --rampup-batch-size\n");
}

}  // namespace
}  // namespace phx
