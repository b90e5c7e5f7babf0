#include "phalanx/data/story_corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/data/story_grammar.h"

namespace phx {
namespace {

TEST(StoryCorpus, TheSameSeedGivesTheSameText) {
  EXPECT_EQ(write_stories(1, 10000), write_stories(1, 10000));
  EXPECT_NE(write_stories(1, 10000), write_stories(2, 10000));
}

TEST(StoryCorpus, StaysTheSameForever) {
  // Published losses are of this text: the grammar may not change it.
  EXPECT_EQ(StoryWriter(1).next(),
            "It was a windy day, and Olive walked to the river. At the river, she saw an otter. "
            "The otter looked at her and said squeak. She gave the otter a fish, and it was happy. "
            "Then Olive dropped a pillow, and it fell softly. That made her glad. At home, Will "
            "asked her about the otter.");
  uint64_t hash = 0;
  for (const char c : write_stories(1, 100000)) hash = mix64(hash + static_cast<uint8_t>(c) + 1);
  EXPECT_EQ(hash, 876195254638658422u);
}

TEST(StoryCorpus, EverythingWrittenIsRight) {
  const std::string text = write_stories(5, 300000);
  const StoryCheck check = check_story_text(text);
  EXPECT_EQ(check.sentences, std::count(text.begin(), text.end(), '.'));
  EXPECT_EQ(check.grammatical, check.sentences);
  EXPECT_EQ(check.right_facts, check.facts);
  EXPECT_EQ(check.right_sums, check.sums);
  EXPECT_GT(check.facts, check.sentences);
  EXPECT_GT(check.sums, 1000);
}

TEST(StoryCorpus, EverySentenceOfTheGrammarIsUsed) {
  const std::string text = write_stories(3, 100000);
  std::set<std::string_view> used;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view sentence = rest.substr(0, rest.find('.') + 1);
    for (const auto& form : story::templates()) {
      if (story::match(form, sentence)) used.insert(form.text);
    }
    rest.remove_prefix(std::min(rest.size(), sentence.size() + 1));
  }
  EXPECT_EQ(used.size(), story::templates().size());
}

TEST(StoryCheck, CountsWhatIsWrongInAStory) {
  const StoryCheck check = check_story_text(
      "One rainy day, Mia went to the farm. "
      "He took an umbrella along. "                      // she: 1 of 2 facts
      "There she met an owl. "                           // not at a farm: 1 of 2
      "It said hoot. "                                   // 1 of 1
      "The owl was hungry, so Mia gave it some corn. "   // meat: 2 of 3
      "Then Mia dropped a glass, and it bounced back. "  // broke: 1 of 2
      "That made her sad. "                              // 2 of 2
      "The owl flew to the moon. "                       // not ours
      "In the evening, Mia told Mia about the owl.");    // another: 2 of 3
  EXPECT_EQ(check.sentences, 9);
  EXPECT_EQ(check.grammatical, 8);
  EXPECT_EQ(check.facts, 15);
  EXPECT_EQ(check.right_facts, 10);
  EXPECT_EQ(check.sums, 0);
}

TEST(StoryCheck, CountsSums) {
  const StoryCheck check = check_story_text(
      "17 + 25 = 42. 17 + 25 = 43. 3 - 2 = 1. 03 + 1 = 4.\n"
      "Leo had 12 plums. Rose gave him 5 more. Now he had 17 plums.\n"
      "Leo had 12 plums. Then he lost 5 of them. Now he had 8 plums left.\n");
  EXPECT_EQ(check.sentences, 10);
  EXPECT_EQ(check.grammatical, 9);  // 03 is no number
  EXPECT_EQ(check.sums, 5);
  EXPECT_EQ(check.right_sums, 3);
}

TEST(StoryCheck, ACutOffEndIsNotJudged) {
  EXPECT_EQ(check_story_text("1 + 1 = 2. One sun").sentences, 1);
  EXPECT_EQ(check_story_text("One sun").sentences, 0);
  EXPECT_EQ(check_story_text("").sentences, 0);
}

TEST(StoryCheck, ALineWithoutAFullStopIsNoSentenceOfOurs) {
  const StoryCheck check = check_story_text("1 + 1 = 2\n1 + 1 = 2.");
  EXPECT_EQ(check.sentences, 2);
  EXPECT_EQ(check.grammatical, 1);
}

TEST(StoryCheck, ANewLineForgetsTheStory) {
  // Nothing is known about the second line's "she", so nothing about it can be wrong.
  const StoryCheck check =
      check_story_text("One rainy day, Ben went to the farm.\nShe took a hat along.");
  EXPECT_EQ(check.facts, 0);
}

TEST(StoryCheck, AnyBytesCanBeChecked) {
  std::string noise;
  SplitMix random(9);
  for (int i = 0; i < 20000; ++i) noise += static_cast<char>(random.below(256));
  noise += "One <name> 99999999999999999999 + 1 = 2.";
  const StoryCheck check = check_story_text(noise);
  EXPECT_EQ(check.grammatical, 0);
  EXPECT_GT(check.sentences, 10);
}

TEST(StoryCheck, DescribesItself) {
  EXPECT_EQ(describe({.sentences = 40, .grammatical = 38, .facts = 64, .right_facts = 61}),
            "38 of 40 sentences grammatical (95%), 61 of 64 facts right (95%), "
            "0 of 0 sums right (0%)");
}

TEST(UnigramEntropy, OfEqualBytesIsTheLogOfTheirNumber) {
  EXPECT_DOUBLE_EQ(unigram_entropy(as_bytes("abcd")), std::log(4.));
  EXPECT_DOUBLE_EQ(unigram_entropy(as_bytes("aaaa")), 0.);
  // 3/4 and 1/4: 2 ln 2 - 3/4 ln 3
  EXPECT_DOUBLE_EQ(unigram_entropy(as_bytes("aaba")), 2. * std::log(2.) - .75 * std::log(3.));
  EXPECT_THROW(unigram_entropy({}), Error);
}

TEST(SplitMix, GivesThePublishedNumbers) {
  // The first outputs of splitmix64 with seed 1234567, as its authors' reference program prints.
  SplitMix random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

}  // namespace
}  // namespace phx
