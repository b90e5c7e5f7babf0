#include "phalanx/text/tokenizer/hugging_face.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<const HuggingFaceTokenizer> fixture(const std::string& name) {
  const Json json = Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers" / (name + ".json")));
  return parse_hugging_face(json["tokenizer"].dump(), {.bos = "<s>", .eos = "<|end|>"}, name);
}

TEST(HuggingFace, NamesWhatIsNotSupported) {
  const Json good =
      Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers/bpe_llama3.json"))["tokenizer"];
  const auto message = [&](const char* part, const Json& value) {
    Json json = good;
    json[part] = value;
    return error_of([&] { parse_hugging_face(json.dump(), {}, "t.json"); });
  };
  EXPECT_EQ(message("normalizer", {{"type", "Rot13"}}),
            "t.json: the normalizer Rot13 is not supported");
  EXPECT_EQ(message("pre_tokenizer", {{"type", "Scissors"}}),
            "t.json: the pre-tokenizer Scissors is not supported");
  EXPECT_EQ(message("decoder", {{"type", "Morse"}}), "t.json: the decoder Morse is not supported");
  EXPECT_EQ(message("post_processor", {{"type", "Stapler"}}),
            "t.json: the post-processor Stapler is not supported");
  EXPECT_EQ(message("model", {{"type", "Oracle"}, {"vocab", Json::object()}}),
            "t.json: the model Oracle is not supported");
  Json dropout = good["model"];
  dropout["dropout"] = 0.1;
  EXPECT_EQ(message("model", dropout), "t.json: the model has dropout, which is not supported");
}

TEST(HuggingFace, NamesWhatIsBroken) {
  const auto message = [](const std::string& json) {
    return error_of([&] { parse_hugging_face(json, {}, "t.json"); });
  };
  EXPECT_EQ(message("[]"), "t.json: this is no tokenizer.json: it has no \"model\"");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})"),
            "t.json: merge 0 needs the token b, which is not in the vocabulary");
  EXPECT_EQ(message(R"({"model":{"type":"BPE","vocab":{"a":-1},"merges":[]}})"),
            "t.json: the token a has the id -1, which should be in 0..2097151");
  EXPECT_EQ(message(std::string(100, '[')), "t.json: the file nests deeper than 64 levels");
  EXPECT_NE(message(R"({"model")").find("parse error"), std::string::npos);
}

TEST(HuggingFace, InvalidUtf8IsReplacedAsPythonDoes) {
  const auto tokenizer = fixture("bpe_llama3");
  EXPECT_EQ(tokenizer->encode("a\xFF\xE4\xB8z\xC0\x80\xF0\x9F\x91"),
            tokenizer->encode("a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFFz")), "a\uFFFDz");
}

TEST(HuggingFace, AnIdBeyondTheVocabularyIsAnError) {
  const auto tokenizer = fixture("bpe_llama3");
  EXPECT_EQ(error_of([&] { tokenizer->decode(Ids{700}); }),
            "token 700 is not in 0..699 of bpe_llama3");
}

TEST(HuggingFace, AMegabyteWithoutASpaceIsNotQuadratic) {
  for (const char* name : {"bpe_llama3", "bpe_gpt2", "bpe_o200k", "bpe_deepseek",
                           "bpe_byte_fallback", "unigram", "word_piece"}) {
    const auto tokenizer = fixture(name);
    std::string text;
    for (size_t i = 0; text.size() < (1 << 20); ++i)
      text += static_cast<char>('a' + i * i % 23 % 26);
    const auto begin = std::chrono::steady_clock::now();
    const Ids ids = tokenizer->encode(text);
    // Quadratic work would be 10^12 steps: minutes. A loaded machine gets a second or two.
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << name;
    EXPECT_FALSE(ids.empty());
  }
}

Json word_level() {
  return {{"model", {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}, {"a", 1}, {"b", 2}}}}},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}}};
}

std::unique_ptr<const HuggingFaceTokenizer> parse(const Json& json) {
  return parse_hugging_face(json.dump(), {}, "t.json");
}

TEST(HuggingFace, AnAddedTokenGetsTheModelsIdOrTheNextOne) {
  Json json = word_level();
  json["added_tokens"] = {{{"content", "<s>"}, {"id", 77}, {"special", true}},
                          {{"content", "a"}, {"id", 88}, {"special", true}}};
  const auto tokenizer = parse(json);
  EXPECT_EQ(tokenizer->token_id("<s>"), 3) << "whatever the file says";
  EXPECT_EQ(tokenizer->token_id("a"), 1);
  EXPECT_EQ(tokenizer->vocab_size(), 4);
  EXPECT_EQ(tokenizer->encode("b<s>b"), (Ids{2, 3, 2}));
  EXPECT_EQ(tokenizer->description(), "WordLevel of 4 tokens from t.json");
}

TEST(HuggingFace, TheTemplatePutsTokensAroundATextAndNowhereElse) {
  Json json = word_level();
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "B"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", "E"}, {"type_id", 0}}}}}},
      {"special_tokens",
       {{"B", {{"id", "B"}, {"ids", {1}}}}, {"E", {{"id", "E"}, {"ids", {2, 0}}}}}}};
  const auto tokenizer = parse(json);
  Ids ids = {9};
  tokenizer->encode_with_special("b", ids);
  EXPECT_EQ(ids, (Ids{9, 1, 2, 2, 0}));
  EXPECT_EQ(tokenizer->encode("b"), (Ids{2}));
  json["post_processor"]["special_tokens"]["E"]["ids"] = {3};
  EXPECT_EQ(error_of([&] { parse(json); }),
            "t.json: the post-processor adds the token 3, which is not in 0..2");
  json["post_processor"]["single"].erase(1);
  EXPECT_EQ(error_of([&] { parse(json); }),
            "t.json: the post-processor's template leaves the text out, which is not supported");
}

TEST(HuggingFace, WithoutADecoderTokensAreJoinedWithSpaces) {
  EXPECT_EQ(parse(word_level())->decode(Ids{1, 2, 1}), "a b a");
}

TEST(HuggingFace, RolesComeFromTheFilesBesideAndTheTokenizersConfigWins) {
  const TempFolder folder;
  write_file(folder / "tokenizer.json", word_level().dump());
  write_file(folder / "special_tokens_map.json", R"({"bos_token": "b", "eos_token": "b"})");
  write_file(folder / "tokenizer_config.json", R"({"eos_token": {"content": "a"}})");
  const auto tokenizer = load_hugging_face(folder.path());
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_EQ(tokenizer->eos(), 1);
  EXPECT_EQ(tokenizer->eod(), 1) << "a document ends as a text does";
  EXPECT_FALSE(tokenizer->pad());
  write_file(folder / "tokenizer_config.json", "7");
  EXPECT_EQ(error_of([&] { load_hugging_face(folder.path()); }),
            (folder / "tokenizer_config.json").string() + " should be a JSON object, but is not");
}

}  // namespace
}  // namespace phx
