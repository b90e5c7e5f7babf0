#include "phalanx/train/catalogue.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(Catalogue, NamesItsModelsWhenOneIsNotThere) {
  try {
    standard_catalogue().model("t6");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("--model t6 is not in the catalogue"),
              std::string::npos);
  }
}

TEST(Catalogue, TheDefaultModelIsInIt) {
  EXPECT_EQ(standard_catalogue().model(default_model().name).name, "gpt");
}

}  // namespace
}  // namespace phx
