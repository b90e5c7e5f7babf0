#include "phalanx/text/tokenizer/regex.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

std::string first_match(const char* pattern, std::string_view text,
                        RegexFlavor flavor = RegexFlavor::oniguruma) {
  size_t begin = 0, end = 0;
  if (!Regex(pattern, flavor).find(text, 0, begin, end)) return "none";
  return std::string(text.substr(begin, end - begin));
}

TEST(Regex, FindsTheFirstMatchFromAPlaceOn) {
  const Regex digits("[0-9]+");
  size_t begin, end;
  ASSERT_TRUE(digits.find("a12b3", 3, begin, end));
  EXPECT_EQ(begin, 4u);
  EXPECT_EQ(end, 5u);
  EXPECT_FALSE(digits.find("a12b", 3, begin, end));
}

TEST(Regex, CategoriesAndLookAheadAreUnderstood) {
  EXPECT_EQ(first_match(R"(\p{Lu}\p{Ll}+)", "x \u00c4ther"), "\u00c4ther");
  EXPECT_EQ(first_match(R"(\s+(?!\S))", "a   b"), "  ");
  EXPECT_EQ(first_match("(?i:'s)", "it'S"), "'S");
}

TEST(Regex, HIsAHexadecimalDigitOnlyForOniguruma) {
  EXPECT_EQ(first_match(R"(\h+)", "xyz12fG"), "12f");
}

TEST(Regex, RefusesWhatPcre2CannotSay) {
  const auto message = [](const char* pattern) -> std::string {
    try {
      Regex regex(pattern);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("[a&&b]"),
            "the regular expression [a&&b] uses an intersection of classes, which is not supported "
            "here");
  EXPECT_EQ(message("[a[b]]"),
            "the regular expression [a[b]] uses a class inside of a class, which is not supported "
            "here");
  EXPECT_EQ(message(R"(a\Kb)"),
            R"(the regular expression a\Kb uses \K, which is not supported here)");
  EXPECT_EQ(message("(a").substr(0, 46), "the regular expression (a is wrong at 2: missi");
}

TEST(Regex, ABrokenPatternIsAnErrorThatShowsIt) { EXPECT_THROW(Regex("(a"), Error); }

}  // namespace
}  // namespace phx
