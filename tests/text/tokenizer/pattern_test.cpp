#include "phalanx/text/tokenizer/pattern.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using Json = nlohmann::json;

TEST(TextPattern, ReplacesPlainTextsAndMatches) {
  EXPECT_EQ(TextPattern(Json{{"String", "a.b"}}).replace("a.b axb", "X"), "X axb");
  EXPECT_EQ(TextPattern(Json{{"Regex", "a.b"}}).replace("a.b axb", "X"), "X X");
}

TEST(TextPattern, EmptyMatchesMoveOnByACharacter) {
  std::string places;
  TextPattern(Json{{"Regex", "x*"}}).for_each_match("äxb", [&](size_t begin, size_t end) {
    places += std::to_string(begin) + "-" + std::to_string(end) + " ";
  });
  EXPECT_EQ(places, "0-0 2-3 4-4 ");
}

TEST(TextPattern, OnlyRegularExpressionsHaveATextOfTheirOwn) {
  EXPECT_EQ(TextPattern(Json{{"Regex", "a+"}}).regex_text(), "a+");
  EXPECT_EQ(TextPattern(Json{{"String", "a+"}}).regex_text(), std::nullopt);
}

TEST(TextPattern, AnotherKindIsAnError) { EXPECT_THROW(TextPattern(Json{{"Glob", "*"}}), Error); }

}  // namespace
}  // namespace phx
