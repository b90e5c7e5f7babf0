#include "phalanx/text/tokenizer/charsmap.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

TEST(Base64, IsReadWithAndWithoutPadding) {
  EXPECT_EQ(decode_base64("TWE="), "Ma");
  EXPECT_EQ(decode_base64("TWFu"), "Man");
  EXPECT_EQ(decode_base64("TQ=="), "M");
  EXPECT_EQ(decode_base64(""), "");
}

TEST(Base64, WhatIsNoneIsAnError) { EXPECT_THROW(decode_base64("T*=="), Error); }

TEST(CharsMap, ATableThatIsCutOffIsAnError) { EXPECT_THROW(CharsMap("TWE="), Error); }

}  // namespace
}  // namespace phx
