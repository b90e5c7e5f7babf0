#include "phalanx/text/tokenizer/split.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"

namespace phx {
namespace {

using Texts = std::vector<std::string>;

Texts cut(const PreTokenizer& stage, std::string_view text) {
  Pieces pieces;
  pieces.reset(text, true);
  stage.cut(pieces);
  Texts texts;
  for (size_t i = 0; i < pieces.size(); ++i) texts.emplace_back(pieces[i]);
  return texts;
}

Texts cut_by(const char* behavior, std::string_view text, bool invert = false) {
  const nlohmann::json json = {{"type", "Split"},
                               {"pattern", {{"String", "-"}}},
                               {"behavior", behavior},
                               {"invert", invert}};
  return cut(*split_by_pattern(JsonFields(json, "pre-tokenizer")), text);
}

TEST(Split, AMatchBecomesWhatTheBehaviorSays) {
  EXPECT_EQ(cut_by("Removed", "a-b--c"), (Texts{"a", "b", "c"}));
  EXPECT_EQ(cut_by("Isolated", "a-b--c"), (Texts{"a", "-", "b", "-", "-", "c"}));
  EXPECT_EQ(cut_by("MergedWithPrevious", "a-b--c"), (Texts{"a-", "b-", "-", "c"}));
  EXPECT_EQ(cut_by("MergedWithNext", "a-b--c"), (Texts{"a", "-b", "-", "-c"}));
  EXPECT_EQ(cut_by("Contiguous", "a-b--c"), (Texts{"a", "-", "b", "--", "c"}));
}

TEST(Split, InvertedWhatLiesBetweenIsTheMatch) {
  EXPECT_EQ(cut_by("Removed", "a-b--c", /*invert=*/true), (Texts{"-", "-", "-"}));
}

TEST(Split, CutsAtClassesAndAtOneCharacter) {
  EXPECT_EQ(cut(*split_at_class(SplitBehavior::removed, kSpace), " a  b"), (Texts{"a", "b"}));
  EXPECT_EQ(cut(*split_at_class(SplitBehavior::isolated, kNumeric), "a12"), (Texts{"a", "1", "2"}));
  EXPECT_EQ(cut(*split_at_character(SplitBehavior::removed, U'ä'), "xäyä"), (Texts{"x", "y"}));
}

TEST(Split, AnUnknownBehaviorIsRefusedByItsName) { EXPECT_THROW(cut_by("Sideways", "a-b"), Error); }

}  // namespace
}  // namespace phx
