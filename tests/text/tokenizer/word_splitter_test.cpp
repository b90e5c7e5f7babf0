// The word patterns written by hand against PCRE2 with the patterns themselves.
#include "phalanx/text/tokenizer/word_splitter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "phalanx/text/tokenizer/regex.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

std::vector<std::string> words_by_regex(const Regex& regex, std::string_view text) {
  std::vector<std::string> words;
  size_t begin, end;
  for (size_t from = 0; from < text.size(); from = end) {
    if (!regex.find(text, from, begin, end) || begin != from || end == begin) {
      return {"no match at " + std::to_string(from)};
    }
    words.emplace_back(text.substr(begin, end - begin));
  }
  return words;
}

std::vector<std::string> words_by_hand(WordPattern pattern, std::string_view text) {
  std::vector<std::string> words;
  for_word_pattern(pattern, [&]<WordPattern kPattern>() {
    for (size_t at = 0; at < text.size();) {
      const size_t end = word_end<kPattern>(text, at);
      words.emplace_back(text.substr(at, end - at));
      at = end;
    }
  });
  return words;
}

// Characters on which the patterns turn: quotes, line ends, marks, cases, digits, odd spaces.
std::string random_text(std::mt19937_64& random) {
  static const std::u32string hard =
      U"  \n\r\t''sStTrReEvVmMlLdD\u017Faz AZ019.,!/-_é\u0301\u0300中ǅʰª\u00A0\u2028\u3000\u0085"
      U"٣²Ⅷ👍\u200D\u0378\u0000\u180E\U00013460\U0001CCF0ßЯя";
  const auto pick = [&](uint64_t count) { return random() % count; };
  std::string text;
  const size_t length = pick(40), kind = pick(3);
  for (size_t i = 0; i < length; ++i) {
    if (kind == 0 || pick(4) > 0) {
      append_code(text, hard[pick(hard.size())]);
    } else if (kind == 1) {
      append_code(text, static_cast<uint32_t>(32 + pick(95)));
    } else {
      const auto code = static_cast<uint32_t>(pick(0x30000));
      if (code < 0xD800 || code > 0xDFFF) append_code(text, code);
    }
  }
  return text;
}

class WordPatterns : public testing::TestWithParam<WordPattern> {};

TEST_P(WordPatterns, CutRandomTextsAsPcre2Does) {
  const Regex regex(pattern_text(GetParam()));
  std::mt19937_64 random(20260101);
  for (int i = 0; i < 30000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(words_by_hand(GetParam(), text), words_by_regex(regex, text))
        << nlohmann::json(text).dump();
  }
}

TEST_P(WordPatterns, CutEveryCodePointAsPcre2Does) {
  const Regex regex(pattern_text(GetParam()));
  for (uint32_t code = 0; code < 0x32400; code += code == 0xD7FF ? 0x801 : 1) {
    std::string text = " a";
    append_code(text, code);
    text += "b ";
    append_code(text, code);
    text += "'s";
    ASSERT_EQ(words_by_hand(GetParam(), text), words_by_regex(regex, text)) << std::hex << code;
  }
}

TEST_P(WordPatterns, AreKnownByTheirText) {
  EXPECT_EQ(known_pattern(pattern_text(GetParam())), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, WordPatterns,
                         testing::Values(WordPattern::gpt2, WordPattern::cl100k, WordPattern::qwen2,
                                         WordPattern::tiktoken_v1, WordPattern::o200k,
                                         WordPattern::tekken));

TEST(WordPatterns, TheirWordsAreKnownByHand) {
  using Words = std::vector<std::string>;
  const char* const text = "It's 12345 HTTPServer's  x!\n\ny";
  EXPECT_EQ(words_by_hand(WordPattern::gpt2, text),
            (Words{"It", "'s", " 12345", " HTTPServer", "'s", " ", " x", "!", "\n", "\n", "y"}));
  EXPECT_EQ(words_by_hand(WordPattern::cl100k, text),
            (Words{"It", "'s", " ", "123", "45", " HTTPServer", "'s", " ", " x", "!\n\n", "y"}));
  EXPECT_EQ(words_by_hand(WordPattern::qwen2, "a12"), (Words{"a", "1", "2"}));
  EXPECT_EQ(words_by_hand(WordPattern::o200k, text),
            (Words{"It's", " ", "123", "45", " HTTPServer's", " ", " x", "!\n\n", "y"}));
  EXPECT_EQ(words_by_hand(WordPattern::tekken, "It's a/b/"), (Words{"It", "'s", " a", "/b", "/"}));
}

TEST(WordPatterns, OthersAreLeftToPcre2) { EXPECT_FALSE(known_pattern(R"(\w+|\s+)")); }

}  // namespace
}  // namespace phx
