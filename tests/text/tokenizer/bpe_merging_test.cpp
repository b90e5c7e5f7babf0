#include <gtest/gtest.h>

#include <random>

#include "phalanx/text/tokenizer/bpe_model.h"

namespace phx {
namespace {

// Letters a, b, c and some of their pairs, joined in the order of the list.
BpeModel letters(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Vocabulary words;
  int32_t next = 0;
  for (const char* letter : {"a", "b", "c"}) words.add(letter, next++);
  std::vector<BpeMerge> merges;
  for (const auto& [left, right] : pairs) {
    words.add(left + right, next);
    merges.push_back(
        {*words.find(left), *words.find(right), next++, static_cast<uint32_t>(merges.size())});
  }
  return BpeModel(words, words, merges, {});
}

std::vector<std::string> tokens_of(const BpeModel& model, std::string_view word) {
  std::vector<int32_t> ids;
  model.encode_word(word, ids);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(model.vocabulary().token(id));
  return tokens;
}

using Tokens = std::vector<std::string>;

TEST(BpeMerging, TheLowestRankGoesFirstAndTheLeftmostOfEquals) {
  const BpeModel model = letters({{"b", "c"}, {"a", "b"}, {"a", "a"}});
  EXPECT_EQ(tokens_of(model, "abc"), (Tokens{"a", "bc"}));
  EXPECT_EQ(tokens_of(model, "aaa"), (Tokens{"aa", "a"}));
  EXPECT_EQ(tokens_of(model, "aba"), (Tokens{"ab", "a"}));
}

// By the definition: again and again the first pair of the lowest rank.
Tokens merged_plainly(const std::vector<std::pair<std::string, std::string>>& pairs,
                      Tokens tokens) {
  for (bool found = true; found;) {
    found = false;
    for (const auto& [left, right] : pairs) {
      for (size_t i = 0; i + 1 < tokens.size() && !found; ++i) {
        if (tokens[i] != left || tokens[i + 1] != right) continue;
        tokens[i] += right;
        tokens.erase(tokens.begin() + int64_t(i) + 1);
        found = true;
      }
      if (found) break;
    }
  }
  return tokens;
}

TEST(BpeMerging, WordsOfEveryLengthAreMergedByTheDefinition) {  // 16 and 64 symbols change the way
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"a", "b"}, {"c", "a"}, {"ab", "c"}, {"b", "b"}, {"ab", "ab"}, {"ca", "ca"}, {"abc", "a"}};
  const BpeModel model = letters(pairs);
  std::mt19937 random(1);
  for (const size_t size : {2, 3, 15, 16, 17, 18, 63, 64, 65, 66, 200}) {
    for (int i = 0; i < 20; ++i) {
      std::string word;
      Tokens symbols;
      while (word.size() < size) word += char('a' + random() % 3);
      for (const char c : word) symbols.emplace_back(1, c);
      ASSERT_EQ(tokens_of(model, word), merged_plainly(pairs, symbols)) << word;
    }
  }
}

}  // namespace
}  // namespace phx
