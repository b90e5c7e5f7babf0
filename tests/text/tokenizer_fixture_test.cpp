// Tokenizers and components against what Hugging Face's library and SentencePiece made of the same
// texts (scripts/make_tokenizer_fixtures.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer/decoder.h"
#include "phalanx/text/tokenizer/hugging_face.h"
#include "phalanx/text/tokenizer/normalizer.h"
#include "phalanx/text/tokenizer/pre_tokenizer.h"
#include "phalanx/text/tokenizer/unicode.h"
#include "phalanx/text/tokenizer_config.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

Json fixture(const std::string& name) {
  return Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers" / (name + ".json")));
}

void expect_same(const Tokenizer& tokenizer, const Json& expected) {
  for (size_t i = 0; i < expected["texts"].size(); ++i) {
    const std::string text = expected["texts"][i];
    const Ids ids = expected["ids"][i];
    EXPECT_EQ(tokenizer.encode(text), ids) << Json(text).dump();
    EXPECT_EQ(tokenizer.decode(ids), expected["decoded"][i].get<std::string>())
        << Json(text).dump();
    if (!expected.contains("special_ids")) continue;
    Ids special;
    tokenizer.encode_with_special(text, special);
    EXPECT_EQ(special, expected["special_ids"][i].get<Ids>()) << Json(text).dump();
  }
}

class TokenizerFixture : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerFixture, GivesTheLibrarysIdsAndTexts) {
  const Json expected = fixture(GetParam());
  expect_same(*parse_hugging_face(expected["tokenizer"].dump(), {}, GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerFixture,
                         testing::Values("bpe_llama3", "bpe_ignore_merges", "bpe_gpt2", "bpe_qwen2",
                                         "bpe_o200k", "bpe_deepseek", "bpe_byte_fallback",
                                         "bpe_unknown", "bpe_unknown_apart", "bpe_suffix",
                                         "bpe_prefix", "word_piece", "word_level", "unigram",
                                         "unigram_fallback"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenizerSentencePiece, GivesTheLibrarysIdsAndTexts) {
  TokenizerConfig config;
  config.tokenizer_type = "SentencePieceTokenizer";
  config.tokenizer_model = std::string(PHX_TEST_DATA) + "/tokenizers/sentencepiece.model";
  expect_same(*make_tokenizer(config), fixture("sentencepiece"));
}

uint64_t fnv(const std::string& text, uint64_t value = 0xCBF29CE484222325u) {
  for (const char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return value;
}

// The texts that the script hashes: every code point of planes 0 and 1 between letters.
std::vector<std::string> every_code() {
  std::vector<std::string> texts;
  size_t count = 0;
  for (uint32_t code = 1; code < kNumCodes; ++code) {
    if ((code >= 0xD800 && code < 0xE000) || (code >= 0x20000 && code % 512 >= 4)) continue;
    if (count++ % 256 == 0) {
      texts.emplace_back();
    } else {
      texts.back() += ' ';
    }
    texts.back() += 'a';
    append_code(texts.back(), code);
    texts.back() += "b 1";
  }
  return texts;
}

std::vector<std::string> pieces_of(const PreTokenizers& all, const std::string& text) {
  Pieces pieces;
  pieces.reset(text, /*first=*/true);
  for (const auto& stage : all.stages) stage->cut(pieces);
  std::vector<std::string> words;
  for (size_t i = 0; i < pieces.size(); ++i) words.emplace_back(pieces[i]);
  return words;
}

std::string joined(const std::vector<std::string>& parts, char between) {
  std::string all;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) all += between;
    all += parts[i];
  }
  return all;
}

TEST(TokenizerComponents, NormalizersDoWhatTheLibraryDoes) {
  const Json all = fixture("components");
  const std::vector<std::string> texts = all["texts"], every = every_code();
  for (const Json& row : all["rows"]) {
    if (row["kind"] != "normalizer") continue;
    const std::string name = row["config"].dump().substr(0, 200);
    const auto normalizer = make_normalizer(row["config"]);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(normalizer->apply(texts[i]), row["out"][i].get<std::string>())
          << name << " of " << Json(texts[i]).dump();
    }
    uint64_t hash = fnv("");
    for (const std::string& text : every) hash = fnv(normalizer->apply(text), hash);
    EXPECT_EQ(std::to_string(hash), row["every"].get<std::string>()) << name;
  }
}

TEST(TokenizerComponents, PreTokenizersDoWhatTheLibraryDoes) {
  const Json all = fixture("components");
  const std::vector<std::string> texts = all["texts"], every = every_code();
  for (const Json& row : all["rows"]) {
    if (row["kind"] != "pre_tokenizer") continue;
    const std::string name = row["config"].dump().substr(0, 200);
    const PreTokenizers made = make_pre_tokenizers(row["config"], ByteLevelMapping::keep);
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(pieces_of(made, texts[i]), row["out"][i].get<std::vector<std::string>>())
          << name << " of " << Json(texts[i]).dump();
    }
    std::vector<std::string> parts;
    for (const std::string& text : every) parts.push_back(joined(pieces_of(made, text), '\1'));
    EXPECT_EQ(std::to_string(fnv(joined(parts, '\2'))), row["every"].get<std::string>()) << name;
  }
}

TEST(TokenizerComponents, DecodersDoWhatTheLibraryDoes) {
  const Json components = fixture("components");
  for (const Json& row : components["rows"]) {
    if (row["kind"] != "decoder") continue;
    const auto decoder = make_decoder(row["config"]);
    for (size_t i = 0; i < row["in"].size(); ++i) {
      std::vector<std::string> tokens = row["in"][i];
      decoder->decode(tokens);
      std::string text;
      for (const std::string& token : tokens) text += token;
      EXPECT_EQ(text, row["out"][i].get<std::string>())
          << row["config"].dump() << " of " << row["in"][i].dump();
    }
  }
}

}  // namespace
}  // namespace phx
