#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/catalogue_facts.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

TEST(MegatronCatalogueModel, NamesAreThereOnceAndStandForNoOption) {
  expect_sound(model_catalogue());
}

TEST(MegatronCatalogueModel, KernelsAreTakenAndOtherArchitecturesRefused) {
  EXPECT_EQ(told({"--use-mcore-models"}), "implied --use-mcore-models\n");
  EXPECT_EQ(told({"--transformer-impl", "local"}), "implied --transformer-impl\n");
  EXPECT_THAT(told({"--is-hybrid-model"}), HasSubstr("only softmax attention"));
}

}  // namespace
}  // namespace phx
