#include "phalanx/text/tokenizer/unicode.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(Unicode, TextsBecomeCodesAndBack) {
  const std::u32string codes = to_codes("a\u00e4\u20ac\U0001F600");
  EXPECT_EQ(codes, U"a\u00e4\u20ac\U0001F600");
  std::string text;
  for (const char32_t code : codes) append_code(text, code);
  EXPECT_EQ(text, "a\u00e4\u20ac\U0001F600");
}

TEST(Unicode, ACharacterIsFoundFromBehind) {
  const std::string text = "a\u20ac";
  EXPECT_EQ(previous_code(text, text.size()), 1u);
  EXPECT_EQ(previous_code(text, 1), 0u);
}

TEST(Unicode, WhatIsNoUtf8BecomesOneReplacementForEachBrokenBeginning) {
  std::string storage;
  EXPECT_EQ(valid_utf8("plain", storage), "plain");
  EXPECT_EQ(valid_utf8("a\xE2\x82"
                       "b\xFF",
                       storage),
            "a\ufffdb\ufffd");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80", storage), "\ufffd\ufffd\ufffd") << "a surrogate";
}

TEST(Unicode, CharactersHaveTheirClasses) {
  EXPECT_TRUE(char_class(U'\u00e4') & kLetter);
  EXPECT_TRUE(char_class(U'\u0663') & kNumber) << "an Arabic three";
  EXPECT_TRUE(char_class(U'\u00a0') & kSpace);
  EXPECT_TRUE(char_class('_') & kWord);
  EXPECT_TRUE(char_class('!') & kPunctuation);
  EXPECT_FALSE(char_class('!') & (kLetter | kNumber | kSpace));
  EXPECT_TRUE(char_class('A') & kUpperSide);
  EXPECT_FALSE(char_class('A') & kLowerSide);
}

TEST(Unicode, EveryByteHasAPrintableCharacterOfItsOwn) {
  for (int byte = 0; byte < 256; ++byte) {
    const uint32_t code = byte_to_code(static_cast<uint8_t>(byte));
    EXPECT_GT(code, 32u);
    EXPECT_EQ(code_to_byte(code), byte);
  }
  EXPECT_EQ(byte_to_code(' '), 0x120u);
  EXPECT_EQ(code_to_byte(0x20), -1);
}

TEST(Unicode, ScriptsAreToldApart) {
  EXPECT_NE(script_of('a'), script_of(U'\u03b1'));
  EXPECT_EQ(script_of('a'), script_of('z'));
  EXPECT_FALSE(category_ranges("Lu").empty());
  EXPECT_TRUE(category_ranges("Nonsense").empty());
}

}  // namespace
}  // namespace phx
