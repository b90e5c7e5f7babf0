#include "phalanx/text/tokenizer/bpe_trainer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/text/tokenizer/hugging_face.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// The merges that were learned, as "left right".
std::vector<std::string> merges_of(const BpeTraining& trained) {
  std::vector<std::string> merges;
  const Json json = Json::parse(trained.tokenizer_json);
  for (const Json& merge : json["model"]["merges"])
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return merges;
}

using Merges = std::vector<std::string>;

TEST(BpeTrainer, JoinsTheMostFrequentPairFirst) {
  BpeTrainer trainer("gpt2");
  trainer.add("abc");
  trainer.add("abc");
  trainer.add("bc");  // bc: 3 times, ab: 2, then a + bc: 2
  EXPECT_EQ(merges_of(trainer.train(258, {})), (Merges{"b c", "a bc"}));
}

TEST(BpeTrainer, OfEqualsThePairOfTheSmallerIdsGoesFirst) {
  BpeTrainer trainer("gpt2");
  for (int i = 0; i < 2; ++i) trainer.add("xyab");
  EXPECT_EQ(merges_of(trainer.train(257, {})), (Merges{"a b"}));
}

TEST(BpeTrainer, APairThatOccursOnceIsNotLearned) {
  BpeTrainer trainer("gpt2");
  trainer.add("abcd");
  const BpeTraining trained = trainer.train(1000, {"<s>"});
  EXPECT_EQ(trained.num_merges, 0);
  EXPECT_EQ(trained.vocab_size, 257);
  EXPECT_EQ(trained.num_words, 1);
  EXPECT_EQ(Json::parse(trained.config_json)["eos_token"], "<s>");
}

TEST(BpeTrainer, OverlappingPairsAreCountedAsTheyAreJoined) {  // aaaa is aa aa, not a aa a
  BpeTrainer trainer("gpt2");
  trainer.add("aaaa");
  trainer.add("aaaa");
  EXPECT_EQ(merges_of(trainer.train(300, {})), (Merges{"a a", "aa aa"}));
}

TEST(BpeTrainer, AVocabularyWithoutRoomForTheBytesIsRefused) {
  EXPECT_EQ(error_of([] { BpeTrainer("gpt2").train(256, {"<s>"}); }),
            "--vocab-size 256 should be at least 257: 256 bytes and the special tokens");
  EXPECT_EQ(error_of([] { BpeTrainer("runes"); }),
            "the pattern runes should be gpt2, llama3, qwen2 or o200k");
}

TEST(BpeTrainer, LearnsFrequentPairsAndReadsItsOwnFile) {
  BpeTrainer trainer("llama3");
  for (int i = 0; i < 50; ++i) trainer.add("the cat sat on the mat, the hat; don't 12345\n");
  const BpeTraining trained = trainer.train(300, {"<|endoftext|>"});
  EXPECT_LE(trained.vocab_size, 300);
  EXPECT_EQ(trained.vocab_size, 257 + trained.num_merges);
  const auto tokenizer =
      parse_hugging_face(trained.tokenizer_json, {.eos = "<|endoftext|>"}, "mine");
  EXPECT_EQ(tokenizer->eod(), 0);
  const Ids ids = tokenizer->encode("the cat<|endoftext|>");
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(ids.back(), 0);
  const std::string other = "Größe 中文\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(other)), other);
}

}  // namespace
}  // namespace phx
