#include "phalanx/text/tokenizer/bpe_model.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "support/temp_folder.h"

namespace phx {
namespace {

using Ids = std::vector<int32_t>;

Vocabulary words(std::initializer_list<const char*> tokens) {
  Vocabulary all;
  for (const char* token : tokens) all.add(token, all.count());
  return all;
}

Ids encoded(const BpeModel& model, std::string_view word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

BpeModel model_of(const Vocabulary& all, const std::vector<BpeMerge>& merges, BpeOptions options) {
  return BpeModel(all, all, merges, std::move(options));
}

TEST(BpeModel, IgnoreMergesTakesAWordThatIsATokenAsItIs) {
  const Vocabulary all = words({"a", "b", "c", "abc"});  // no merges lead to abc
  EXPECT_EQ(encoded(model_of(all, {}, {}), "abc"), (Ids{0, 1, 2}));
  EXPECT_EQ(encoded(model_of(all, {}, {.ignore_merges = true}), "abc"), (Ids{3}));
  EXPECT_EQ(encoded(model_of(all, {}, {.ignore_merges = true}), "abca"), (Ids{0, 1, 2, 0}));
}

TEST(BpeModel, LongTokensAreTakenAsTheyAreAsWell) {  // those beyond 15 bytes lie in another table
  const char* const word = "abababababababababab";
  const BpeModel model = model_of(words({"a", "b", word}), {}, {.ignore_merges = true});
  EXPECT_EQ(encoded(model, word), (Ids{2}));
  EXPECT_EQ(encoded(model, word + 1).size(), 19u);
}

TEST(BpeModel, UnknownNeighboursFuseOnlyWhereTheFileSaysSo) {
  const Vocabulary all = words({"<unk>", "a"});
  EXPECT_EQ(encoded(model_of(all, {}, {.unknown = "<unk>"}), "xxaé"), (Ids{0, 0, 1, 0}));
  EXPECT_EQ(encoded(model_of(all, {}, {.fuse_unknown = true, .unknown = "<unk>"}), "xxaé"),
            (Ids{0, 1, 0}));
  EXPECT_EQ(encoded(model_of(all, {}, {}), "xax"), (Ids{1})) << "without one they are left out";
  EXPECT_EQ(error_of([&] { encoded(model_of(all, {}, {.unknown = "<what>"}), "ax"); }),
            "the unknown token <what> is not in the vocabulary, but the text holds x");
}

TEST(BpeModel, ACharacterFallsBackToItsBytesIfAllAreThere) {
  Vocabulary all = words({"<unk>", "a"});
  all.add("<0xC3>", 2);
  all.add("<0xA9>", 3);
  const BpeModel model = model_of(all, {}, {.byte_fallback = true, .unknown = "<unk>"});
  EXPECT_EQ(encoded(model, "aé"), (Ids{1, 2, 3}));
  EXPECT_EQ(encoded(model, "è"), (Ids{0})) << "A8 is missing, so C3 does not stand alone";
}

TEST(BpeModel, PrefixesMarkTheInsideAndSuffixesTheEndOfAWord) {
  const BpeModel prefix = model_of(words({"a", "##a", "##b"}), {}, {.prefix = "##"});
  EXPECT_EQ(encoded(prefix, "aab"), (Ids{0, 1, 2}));
  const BpeModel suffix = model_of(words({"a", "a</w>"}), {}, {.suffix = "</w>"});
  EXPECT_EQ(encoded(suffix, "aaa"), (Ids{0, 0, 1}));
}

TEST(BpeModel, TheCacheOfWordsChangesNothing) {
  std::vector<std::string> texts;  // around the sizes at which words move to another slot
  for (const size_t size : {1, 2, 14, 15, 16, 17, 30, 31, 32, 33, 70})
    for (int i = 0; i < 8; ++i) {
      texts.emplace_back();
      for (size_t k = 0; k < size; ++k) texts.back() += char('a' + (k * k + size_t(i) * k) % 3);
    }
  const std::vector<BpeMerge> merges = {{0, 1, 3, 0}, {3, 2, 4, 1}};
  const BpeModel cached = model_of(words({"a", "b", "c", "ab", "abc"}), merges, {});
  const BpeModel plain = model_of(words({"a", "b", "c", "ab", "abc"}), merges, {});
  plain.use_word_cache(false);
  for (int round = 0; round < 3; ++round)
    for (const std::string& text : texts) ASSERT_EQ(encoded(cached, text), encoded(plain, text));
}

TEST(BpeModel, ACacheIsNotSharedByTwoModels) {
  const BpeModel one = model_of(words({"a", "b"}), {}, {});
  const BpeModel two = model_of(words({"b", "a"}), {}, {});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(encoded(one, "ab"), (Ids{0, 1}));
    EXPECT_EQ(encoded(two, "ab"), (Ids{1, 0}));
  }
}

}  // namespace
}  // namespace phx
