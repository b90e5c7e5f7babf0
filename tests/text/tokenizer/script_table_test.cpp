#include <gtest/gtest.h>

#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

TEST(ScriptTable, RunsAreInOrderAndCoverAllCodes) {
  EXPECT_EQ(kScriptRuns[0] / 256, 0u);
  for (size_t i = 1; i < kNumScriptRuns; ++i) {
    EXPECT_LT(kScriptRuns[i - 1] / 256, kScriptRuns[i] / 256);
    EXPECT_NE(kScriptRuns[i - 1] % 256, kScriptRuns[i] % 256) << "one run, not two";
    EXPECT_LT(kScriptRuns[i] / 256, kNumCodes);
  }
}

TEST(ScriptTable, LettersOfAnAlphabetAreOneScript) {
  const auto expect_one = [](std::u32string_view codes) {
    for (const char32_t code : codes)
      EXPECT_EQ(script_of(code), script_of(codes[0])) << uint32_t(codes[0]);
  };
  expect_one(U"aZ\u00e9\u017f");            // Latin
  expect_one(U"\u0430\u042f\u0451");        // Cyrillic
  expect_one(U"\u0627\u064a");              // Arabic
  expect_one(U"\u4e2d\u3042\u30ab\u30fc");  // Han, Hiragana, Katakana and the mark of length
}

TEST(ScriptTable, AlphabetsDifferAndSpacesGoWithAny) {
  const std::u32string codes = U"a\u03b1\u0430\u05d0\u0627\u0905\u4e2d\uac00";
  for (size_t i = 0; i < codes.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(script_of(codes[i]), script_of(codes[k]));
  EXPECT_EQ(script_of(' '), 0);
  EXPECT_NE(script_of('a'), 0);
}

}  // namespace
}  // namespace phx
