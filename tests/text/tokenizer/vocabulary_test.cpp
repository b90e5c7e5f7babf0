#include "phalanx/text/tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

TEST(Vocabulary, FindsTokensAndIdsBothWays) {
  Vocabulary words;
  words.add("a", 0);
  words.add("b", 3);
  EXPECT_EQ(words.find("b"), 3);
  EXPECT_EQ(words.find("c"), std::nullopt);
  EXPECT_EQ(words.token(3), "b");
  EXPECT_EQ(words.size(), 4);
  EXPECT_EQ(words.count(), 2);
}

TEST(Vocabulary, AGapIsAnEmptyToken) {
  Vocabulary words;
  words.add("b", 2);
  EXPECT_FALSE(words.has(1));
  EXPECT_EQ(words.token(1), "");
  EXPECT_TRUE(words.has(2));
  EXPECT_FALSE(words.has(3) || words.has(-1));
}

TEST(Vocabulary, TheSameTextTwiceKeepsTheLastId) {
  Vocabulary words;
  words.add("a", 1);
  words.add("a", 5);
  EXPECT_EQ(words.find("a"), 5);
}

TEST(Vocabulary, IdsOutsideOfItsBoundsAreErrors) {
  Vocabulary words;
  EXPECT_THROW(words.add("a", -1), Error);
  EXPECT_THROW(words.add("a", Vocabulary::kMaxSize), Error);
  words.add("a", Vocabulary::kMaxSize - 1);
}

}  // namespace
}  // namespace phx
