#include "phalanx/base/error.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace phx {
namespace {

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Error, ACheckSaysItsPartsInOneText) {
  EXPECT_EQ(text_of([] { PHX_CHECK(1 > 2, "x is ", 3, ", not ", 4.5); }), "x is 3, not 4.5");
  EXPECT_EQ(text_of([] { PHX_CHECK(2 > 1, "never"); }), "");
}

TEST(Error, ACheckMakesItsMessageOnlyWhenItFails) {
  int made = 0;
  const auto message = [&] { return ++made, "m"; };
  PHX_CHECK(true, message());
  EXPECT_EQ(made, 0);
}

TEST(Error, AnAssertionNamesTheConditionAndThePlace) {
  const std::string text = text_of([] { PHX_ASSERT(1 + 1 == 3, "arithmetic"); });
  EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos) << text;
  EXPECT_NE(text.find("error_test.cpp"), std::string::npos) << text;
  EXPECT_NE(text.find("arithmetic"), std::string::npos) << text;
}

}  // namespace
}  // namespace phx
