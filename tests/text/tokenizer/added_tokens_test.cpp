#include "phalanx/text/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

std::string parts(const AddedTokens& tokens, std::string_view text) {
  std::string result;
  tokens.split(
      text,
      [&](size_t begin, size_t end) {
        result += "[" + std::string(text.substr(begin, end - begin)) + "]";
      },
      [&](int32_t id) { result += std::to_string(id); });
  return result;
}

void add(AddedTokens& tokens, AddedToken token) { tokens.add(token, token.content); }

TEST(AddedTokens, AreCutOutOfTheText) {
  AddedTokens tokens;
  add(tokens, {.content = "<s>", .id = 1});
  EXPECT_EQ(parts(tokens, "a<s>b<s>"), "[a]1[b]1");
  EXPECT_EQ(parts(tokens, "plain <s"), "[plain <s]");
}

TEST(AddedTokens, TheLongestAtTheLeftmostPlaceWins) {
  AddedTokens tokens;
  add(tokens, {.content = "ab", .id = 1});
  add(tokens, {.content = "abc", .id = 2});
  add(tokens, {.content = "bcd", .id = 3});
  EXPECT_EQ(parts(tokens, "xabcd"), "[x]2[d]");
}

TEST(AddedTokens, MayTakeSpacesAlong) {
  AddedTokens tokens;
  add(tokens, {.content = "<l>", .id = 1, .lstrip = true});
  add(tokens, {.content = "<r>", .id = 2, .rstrip = true});
  EXPECT_EQ(parts(tokens, "a  <l> b"), "[a]1[ b]");
  EXPECT_EQ(parts(tokens, "a <r>  b"), "[a ]2[b]");
}

TEST(AddedTokens, ASingleWordIsNotFoundInsideOfOne) {
  AddedTokens tokens;
  add(tokens, {.content = "cat", .id = 1, .single_word = true});
  EXPECT_EQ(parts(tokens, "cat concat cat."), "1[ concat ]1[.]");
}

}  // namespace
}  // namespace phx
