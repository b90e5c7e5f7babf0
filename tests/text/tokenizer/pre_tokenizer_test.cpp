#include "phalanx/text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

Texts cut(const Json& json, std::string_view text, bool first = true) {
  const PreTokenizers made = make_pre_tokenizers(json, ByteLevelMapping::keep);
  Pieces pieces;
  pieces.reset(text, first);
  for (const auto& stage : made.stages) stage->cut(pieces);
  Texts texts;
  for (size_t i = 0; i < pieces.size(); ++i) texts.emplace_back(pieces[i]);
  return texts;
}

TEST(PreTokenizer, WhitespaceCutsWordsAndSigns) {
  EXPECT_EQ(cut({{"type", "Whitespace"}}, " it's _ok_!? "), (Texts{"it", "'", "s", "_ok_", "!?"}));
  EXPECT_EQ(cut({{"type", "WhitespaceSplit"}}, "it's ok"), (Texts{"it's", "ok"}));
  EXPECT_EQ(cut({{"type", "BertPreTokenizer"}}, "it's!!"), (Texts{"it", "'", "s", "!", "!"}));
}

TEST(PreTokenizer, MetaspaceMarksEveryWordOrOnlyTheFirstOfADocument) {
  EXPECT_EQ(cut({{"type", "Metaspace"}}, "a b"), (Texts{"\u2581a", "\u2581b"}));
  EXPECT_EQ(cut({{"type", "Metaspace"}}, " a"), (Texts{"\u2581a"})) << "it has its sign";
  const Json first = {{"type", "Metaspace"}, {"prepend_scheme", "first"}, {"split", false}};
  EXPECT_EQ(cut(first, "a b"), (Texts{"\u2581a\u2581b"}));
  EXPECT_EQ(cut(first, "a b", /*first=*/false), (Texts{"a\u2581b"}));
  EXPECT_EQ(cut({{"type", "Metaspace"}, {"add_prefix_space", false}}, "a"), (Texts{"a"}));
  EXPECT_EQ(error_of([] {
              cut({{"type", "Metaspace"}, {"replacement", "__"}}, "a");
            }),
            "Metaspace's replacement __ should be one character");
}

TEST(PreTokenizer, ByteLevelSpellsBytesInPrintableCharacters) {
  EXPECT_EQ(cut({{"type", "ByteLevel"}}, "a b"), (Texts{"\u0120a", "\u0120b"}));
  EXPECT_EQ(cut({{"type", "ByteLevel"}, {"add_prefix_space", false}}, "\u00e9"),
            (Texts{"\u00c3\u00a9"}));
}

TEST(PreTokenizer, TheMappingIsLeftOutOfTheLastByteLevelAlone) {
  const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const PreTokenizers last = make_pre_tokenizers(bytes, ByteLevelMapping::leave_out);
  EXPECT_TRUE(last.bytes);
  EXPECT_EQ(last.stages.at(0)->words(), WordPattern::gpt2);
  const Json sequence = {{"type", "Sequence"}, {"pretokenizers", {bytes, {{"type", "Digits"}}}}};
  const PreTokenizers inner = make_pre_tokenizers(sequence, ByteLevelMapping::leave_out);
  EXPECT_FALSE(inner.bytes);
  EXPECT_FALSE(inner.stages.at(0)->words()) << "this one maps";
}

TEST(PreTokenizer, DigitsScriptsAndLengthsCut) {
  EXPECT_EQ(cut({{"type", "Digits"}}, "a12b"), (Texts{"a", "12", "b"}));
  EXPECT_EQ(cut({{"type", "Digits"}, {"individual_digits", true}}, "a12"), (Texts{"a", "1", "2"}));
  EXPECT_EQ(cut({{"type", "UnicodeScripts"}}, "ab \u0436\u4e2d\u3042"),
            (Texts{"ab ", "\u0436", "\u4e2d\u3042"}));
  EXPECT_EQ(cut({{"type", "FixedLength"}, {"length", 2}}, "a\u00e9bcd"),
            (Texts{"a\u00e9", "bc", "d"}));
  EXPECT_EQ(cut({{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "a--b"), (Texts{"a", "b"}));
}

TEST(PreTokenizer, WhatCannotBeMeantIsRefused) {
  const auto message = [](const Json& json) { return error_of([&] { cut(json, "a"); }); };
  EXPECT_EQ(message({{"type", "FixedLength"}, {"length", 0}}),
            "the pre-tokenizer has a length below 1, which is not supported");
  EXPECT_EQ(message({{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}),
            "the pre-tokenizer has a delimiter that is not one character, which "
            "is not supported");
  EXPECT_EQ(message({{"type", "Scissors"}}), "the pre-tokenizer Scissors is not supported");
}

TEST(PreTokenizer, AnEmptyTextHasNoPieces) {
  EXPECT_TRUE(cut({{"type", "Metaspace"}}, "").empty());
  EXPECT_TRUE(make_pre_tokenizers(Json(), ByteLevelMapping::keep).stages.empty());
}

}  // namespace
}  // namespace phx
