#include "phalanx/text/tokenizer/token_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/text/tokenizer/unicode.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

Ids encoded(const TokenModel& model, std::string_view word) {
  Ids ids;
  model.encode_word(word, ids);
  return ids;
}

Json bpe() {
  return {{"type", "BPE"},
          {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}},
          {"merges", Json::array({"a b"})}};
}

TEST(TokenModel, MergesMayBeTextsOrPairs) {
  Json pairs = bpe();
  pairs["merges"] = Json::array({Json::array({"a", "b"})});
  for (const Json& json : {bpe(), pairs})
    EXPECT_EQ(encoded(*make_token_model(json, false), "aab"), (Ids{0, 2}));
}

TEST(TokenModel, AMergeThatIsNotTwoTokensIsShown) {
  const auto message = [](const Json& merge) {
    Json json = bpe();
    json["merges"] = Json::array({merge});
    return error_of([&] { make_token_model(json, false); });
  };
  EXPECT_EQ(message("ab"), "merge 0 should be two tokens with a space between them, but is \"ab\"");
  EXPECT_EQ(message("a b c"),
            "merge 0 should be two tokens with a space between them, but is \"a b c\"");
  EXPECT_EQ(message(7), "merge 0 should be two tokens, but is 7");
  EXPECT_EQ(message("b a"), "merge 0 needs the token ba, which is not in the vocabulary");
}

TEST(TokenModel, ContinuationsLoseTheirPrefixInAMerge) {
  const Json json = {{"type", "BPE"},
                     {"continuing_subword_prefix", "##"},
                     {"vocab", {{"a", 0}, {"##b", 1}, {"ab", 2}}},
                     {"merges", Json::array({"a ##b"})}};
  EXPECT_EQ(encoded(*make_token_model(json, false), "ab"), (Ids{2}));
  EXPECT_FALSE(takes_bytes(json));
}

TEST(TokenModel, OldFilesSayTheirKindByTheirFields) {
  Json json = bpe();
  json.erase("type");
  EXPECT_STREQ(make_token_model(json, false)->name(), "BPE");
  json.erase("merges");
  json["vocab"]["[UNK]"] = 3;
  EXPECT_STREQ(make_token_model(json, false)->name(), "WordPiece");
}

TEST(TokenModel, BytesAreTakenAsTheyAreWhereNothingElseIsAsked) {
  EXPECT_TRUE(takes_bytes(bpe()));
  Json unknown = bpe();
  unknown["unk_token"] = "<unk>";
  EXPECT_FALSE(takes_bytes(unknown));
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_code(spelled, byte_to_code(static_cast<uint8_t>(byte)));
    unknown["vocab"][spelled] = 10 + byte;
  }
  EXPECT_TRUE(takes_bytes(unknown)) << "every byte is there, so nothing is unknown";
  EXPECT_EQ(encoded(*make_token_model(unknown, true), " \xFF"), (Ids{10 + 32, 10 + 255}));
}

TEST(TokenModel, IdsAreIntegersAndDropoutIsNotSupported) {
  Json json = bpe();
  json["vocab"]["a"] = "zero";
  EXPECT_EQ(error_of([&] { make_token_model(json, false); }),
            "the id of the token a should be an integer, but is string");
  json = bpe();
  json["dropout"] = 0.0;
  make_token_model(json, false);
  json["dropout"] = 0.1;
  EXPECT_EQ(error_of([&] { make_token_model(json, false); }),
            "the model has dropout, which is not supported");
}

}  // namespace
}  // namespace phx
