#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/text/tokenizer/token_model.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

Ids encoded(const std::unique_ptr<const TokenModel>& model, std::string_view word) {
  Ids ids = {99};  // stays: tokens are appended
  model->encode_word(word, ids);
  EXPECT_EQ(ids.at(0), 99);
  return Ids(ids.begin() + 1, ids.end());
}

// Pieces and their log probabilities, by id.
Json unigram(std::initializer_list<std::pair<const char*, double>> pieces) {
  Json json = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", Json::array()}};
  for (const auto& [piece, score] : pieces) json["vocab"].push_back({piece, score});
  return json;
}

TEST(Unigram, TheLikeliestCutWins) {
  // ab + c: -3; a + bc: -2.5; a + b + c: -6
  const auto model = make_unigram(
      unigram({{"<unk>", 0}, {"a", -2}, {"b", -2}, {"c", -2}, {"ab", -1}, {"bc", -0.5}}));
  EXPECT_EQ(encoded(model, "abc"), (Ids{1, 5}));
  EXPECT_EQ(encoded(model, "ab"), (Ids{4}));
}

TEST(Unigram, UnknownNeighboursAreOneToken) {
  const auto model = make_unigram(unigram({{"<unk>", 0}, {"a", -1}}));
  EXPECT_EQ(encoded(model, "x\u00e9ax"), (Ids{0, 1, 0}));
}

TEST(Unigram, AnUnknownCharacterIsWorseThanTheWorstPieceByTen) {
  // "xa" as one piece: -11.5; x unknown and a: (-11.5 - 10) - 1.
  const auto model = make_unigram(unigram({{"<unk>", 0}, {"a", -1}, {"xa", -11.5}}));
  EXPECT_EQ(encoded(model, "xa"), (Ids{2}));
}

TEST(Unigram, BytesStandForWhatIsUnknown) {
  Json json = unigram({{"<unk>", 0}, {"a", -1}, {"<0xC3>", -1}, {"<0xA9>", -1}});
  json["byte_fallback"] = true;
  EXPECT_EQ(encoded(make_unigram(json), "a\u00e9"), (Ids{1, 2, 3}));
  EXPECT_EQ(encoded(make_unigram(json), "\u00e8"), (Ids{0})) << "A8 is missing";
}

TEST(Unigram, BrokenModelsAreNamed) {
  Json json = unigram({{"<unk>", 0}, {"a", -1}});
  json["unk_id"] = 2;
  EXPECT_EQ(error_of([&] { make_unigram(json); }), "unk_id is 2, but the vocabulary has 2 pieces");
  json["unk_id"] = nullptr;
  EXPECT_EQ(error_of([&] { encoded(make_unigram(json), "ax"); }),
            "the text holds x, and the Unigram model has no unknown token");
  json["vocab"][1] = {"a"};
  EXPECT_EQ(error_of([&] { make_unigram(json); }),
            "a piece of a Unigram model should be [text, score], but is [\"a\"]");
}

Json word_piece() {
  return {
      {"type", "WordPiece"},
      {"vocab", {{"[UNK]", 0}, {"un", 1}, {"una", 2}, {"##able", 3}, {"##b", 4}, {"##ble", 5}}}};
}

TEST(WordPiece, TheLongestBeginningWinsAndAWordThatGetsStuckIsUnknown) {
  const auto model = make_word_piece(word_piece());
  EXPECT_EQ(encoded(model, "unable"), (Ids{2, 5})) << "una + ##ble, though un + ##able fits, too";
  EXPECT_EQ(encoded(model, "unb"), (Ids{1, 4}));
  EXPECT_EQ(encoded(model, "unbx"), (Ids{0})) << "the whole word";
  EXPECT_EQ(encoded(model, "able"), (Ids{0})) << "continuations do not begin words";
}

TEST(WordPiece, AWordOfTooManyCharactersIsUnknown) {
  Json json = word_piece();
  json["max_input_chars_per_word"] = 2;
  EXPECT_EQ(encoded(make_word_piece(json), "un"), (Ids{1}));
  EXPECT_EQ(encoded(make_word_piece(json), "una"), (Ids{0}));
  json["vocab"].erase("[UNK]");
  EXPECT_EQ(error_of([&] { encoded(make_word_piece(json), "una"); }),
            "the unknown token [UNK] is not in the vocabulary");
}

TEST(WordLevel, AWordIsATokenOrUnknown) {
  Json json = {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {"one", 1}}}};
  EXPECT_EQ(encoded(make_word_level(json), "one"), (Ids{1}));
  EXPECT_EQ(encoded(make_word_level(json), "on"), (Ids{0}));
  json["unk_token"] = "[none]";
  EXPECT_EQ(error_of([&] { encoded(make_word_level(json), "on"); }),
            "the text holds on, and the unknown token [none] is not in the vocabulary");
}

}  // namespace
}  // namespace phx
