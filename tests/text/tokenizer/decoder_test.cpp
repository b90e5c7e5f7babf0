#include "phalanx/text/tokenizer/decoder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Tokens = std::vector<std::string>;

Tokens decoded(const Json& json, Tokens tokens) {
  make_decoder(json)->decode(tokens);
  return tokens;
}

TEST(Decoder, ByteLevelJoinsBytesIntoCharacters) {
  // Bytes E2, 82, AC are spelled as these three characters; a space is U+0120.
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"a", "\u0120b", "\u00e2", "\u0124", "\u00ac"}),
            (Tokens{"a b\u20ac"}));
  EXPECT_EQ(decoded({{"type", "ByteLevel"}}, {"<|\u4e2d|>", "\u0120a"}), (Tokens{"<|\u4e2d|> a"}))
      << "an added token is itself";
}

TEST(Decoder, BytesOfTheFallbackAreOneCharacterOrAsManyReplacements) {
  const Json json = {{"type", "ByteFallback"}};
  EXPECT_EQ(decoded(json, {"a", "<0xC3>", "<0xA9>", "b"}), (Tokens{"a", "\u00e9", "b"}));
  EXPECT_EQ(decoded(json, {"<0xC3>", "b"}), (Tokens{"\ufffd", "b"}));
  EXPECT_EQ(decoded(json, {"<0xE2>", "<0x82>"}), (Tokens{"\ufffd", "\ufffd"}));
  EXPECT_EQ(decoded(json, {"<0xZZ>", "<0x1>"}), (Tokens{"<0xZZ>", "<0x1>"}));
}

TEST(Decoder, WordPiecesAreJoinedAndPunctuationCleanedUp) {
  EXPECT_EQ(decoded({{"type", "WordPiece"}}, {"do", "##ing", "well", "!"}),
            (Tokens{"do", "ing", " well", "!"}));
  EXPECT_EQ(decoded({{"type", "WordPiece"}, {"cleanup", false}}, {"well", "!"}),
            (Tokens{"well", " !"}));
}

TEST(Decoder, TheFirstMetaspaceIsNoSpaceUnlessNoneWasPutThere) {
  EXPECT_EQ(decoded({{"type", "Metaspace"}}, {"\u2581a", "\u2581b"}), (Tokens{"a", " b"}));
  EXPECT_EQ(decoded({{"type", "Metaspace"}, {"prepend_scheme", "never"}}, {"\u2581a", "b"}),
            (Tokens{" a", "b"}));
}

TEST(Decoder, StripTakesAsManyFromEachSideAsItSays) {
  const Json json = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 2}};
  EXPECT_EQ(decoded(json, {"  a   ", "b"}), (Tokens{" a ", "b"}));
}

TEST(Decoder, CtcDropsRepeatsAndPadding) {
  EXPECT_EQ(decoded({{"type", "CTC"}}, {"a", "a", "<pad>", "a", "|", "b"}),
            (Tokens{"a", "a", " ", "b"}));
}

TEST(Decoder, StagesOfASequenceRunInOrder) {
  const Json json = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", "y"}},
                       {{"type", "Fuse"}}}}};
  EXPECT_EQ(decoded(json, {"ax", "x"}), (Tokens{"ayy"}));
  EXPECT_EQ(decoded({{"type", "BPEDecoder"}}, {"a</w>", "b</w>"}), (Tokens{"a ", "b"}));
}

TEST(Decoder, NullIsNoneAndAnUnknownKindIsNamed) {
  EXPECT_EQ(make_decoder(Json()), nullptr);
  EXPECT_EQ(error_of([] {
              make_decoder(Json{{"type", "Morse"}});
            }),
            "the decoder Morse is not supported");
}

}  // namespace
}  // namespace phx
