// make_tokenizer's kinds, errors, streaming, training, and texts that would hurt a careless
// encoder.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer/bpe_trainer.h"
#include "phalanx/text/tokenizer/charsmap.h"
#include "phalanx/text/tokenizer/hugging_face.h"
#include "phalanx/text/tokenizer/rank_tokenizer.h"
#include "phalanx/text/tokenizer/unicode.h"
#include "phalanx/text/tokenizer/word_splitter.h"
#include "phalanx/text/tokenizer_config.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::unique_ptr<const HuggingFaceTokenizer> fixture(const std::string& name) {
  const Json json = Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers" / (name + ".json")));
  return parse_hugging_face(json["tokenizer"].dump(), {.bos = "<s>", .eos = "<|end|>"}, name);
}

// 256 bytes, then "ab", "abc", "bc" and " a" in this order of ranks.
std::vector<std::string> small_ranks() {
  std::vector<std::string> ranks;
  for (int byte = 0; byte < 256; ++byte) ranks.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "abc", "bc", " a"}) ranks.emplace_back(token);
  return ranks;
}

TEST(TokenizerKinds, BytesAreTheirOwnTokens) {
  TokenizerConfig config;
  config.tokenizer_type = "ByteTokenizer";
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->encode("a\xFF"), (Ids{97, 255}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 255}), "a\xFF");
  EXPECT_EQ(tokenizer->eod(), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
}

TEST(TokenizerKinds, NullTokenizerNeedsAVocabularySize) {
  TokenizerConfig config;
  config.tokenizer_type = "NullTokenizer";
  EXPECT_EQ(error_of([&] { make_tokenizer(config); }),
            "--tokenizer-type NullTokenizer needs --vocab-size");
  const auto tokenizer = make_tokenizer(config, 100);
  EXPECT_EQ(tokenizer->encode("Aé"), (Ids{65, 233 % 100}));
  EXPECT_EQ(tokenizer->decode(Ids{65, 33}), "65 33");
  EXPECT_EQ(tokenizer->eod(), 99);
  EXPECT_FALSE(tokenizer->pad());
}

TEST(TokenizerKinds, RanksMergeTheLowestFirst) {
  const auto tokenizer = make_rank_tokenizer(small_ranks(),
                                             {.pattern = pattern_text(WordPattern::tekken),
                                              .specials = {"<s>", "</s>"},
                                              .vocab_size = 262},
                                             "small");
  // " a" has a higher rank than "ab": " abd" is " ", "ab", "d".
  EXPECT_EQ(tokenizer->encode("abc abd</s>bc"),
            (Ids{2 + 257, 2 + 32, 2 + 256, 2 + 'd', 1, 2 + 258}));
  EXPECT_EQ(tokenizer->decode(Ids{259, 34, 258}), "abc ab");
  EXPECT_EQ(tokenizer->eod(), 1);
  EXPECT_EQ(
      error_of(
          [] { make_rank_tokenizer(small_ranks(), {.pattern = "a", .vocab_size = 300}, "small"); }),
      "small has 260 tokens, but 300 are needed beside 0 special ones for a vocabulary of 300\n"
      "  hint: add --vocab-size 260");
}

// small_ranks() as a JSON list.
Json small_list() {
  Json list = Json::array();
  const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (const std::string& token : small_ranks()) {
    std::string base64;
    for (size_t i = 0; i < token.size(); i += 3) {
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k) {
        bits = bits << 8 | (i + k < token.size() ? static_cast<uint8_t>(token[i + k]) : 0);
      }
      for (int k = 0; k < 4; ++k) base64 += digits[bits >> (18 - 6 * k) & 63];
      if (i + 2 > token.size()) base64[base64.size() - 2] = '=';
      if (i + 3 > token.size()) base64[base64.size() - 1] = '=';
    }
    EXPECT_EQ(decode_base64(base64), token);
    list.push_back({{"rank", list.size()}, {"token_bytes", base64}, {"token_str", nullptr}});
  }
  return list;
}

TEST(TokenizerKinds, TiktokenFilesHaveMegatronsSpecialTokensFirst) {
  const Path path = Path(testing::TempDir()) / "small_tiktoken.json";
  write_file(path, small_list().dump());
  TokenizerConfig config;
  config.tokenizer_type = "TikTokenizer";
  config.tokenizer_model = path.string();
  config.tiktoken_num_special_tokens = 10;
  const auto tokenizer = make_tokenizer(config, 270);
  EXPECT_EQ(tokenizer->encode("<s>ab</s>"), (Ids{1, 10 + 256, 2}));
  EXPECT_EQ(tokenizer->token_text(8), "<SPECIAL_8>");
  EXPECT_EQ(tokenizer->pad(), 4);
  EXPECT_EQ(error_of([&] { make_tokenizer(config); }).substr(0, path.string().size() + 16),
            path.string() + " has 260 tokens,");
}

TEST(TokenizerKinds, TikTokenizerDecidesByContentAndCutsAtTheVocabularysSize) {
  const Path folder = testing::TempDir();
  const Json tekken = {{"config",
                        {{"pattern", pattern_text(WordPattern::tekken)},
                         {"default_vocab_size", 270},
                         {"default_num_special_tokens", 10}}},
                       {"vocab", small_list()},
                       {"special_tokens", {{{"token_str", "<unk>"}}, {{"token_str", "<s>"}}}}};
  write_file(folder / "tekken.json", small_list().dump());  // Megatron's list, in Mistral's name
  write_file(folder / "any.model", tekken.dump());
  TokenizerConfig config;
  config.tokenizer_type = "TikTokenizer";
  config.tiktoken_num_special_tokens = 7;
  config.tokenizer_model = folder / "tekken.json";
  const auto list = make_tokenizer(config, 7 + 258);
  EXPECT_EQ(list->vocab_size(), 265);
  EXPECT_EQ(list->token_id("<pad>"), 4);                   // Megatron's special tokens
  EXPECT_EQ(list->encode("abc"), (Ids{7 + 257}));          // the last rank that is kept
  EXPECT_EQ(list->encode("bc"), (Ids{7 + 'b', 7 + 'c'}));  // "bc" is cut away
  config.tokenizer_model = folder / "any.model";
  EXPECT_EQ(make_tokenizer(config)->vocab_size(), 270);  // the file's own
  EXPECT_EQ(make_tokenizer(config)->encode("bc"), (Ids{10 + 258}));
  const auto cut = make_tokenizer(config, 10 + 258);
  EXPECT_EQ(cut->vocab_size(), 268);
  EXPECT_EQ(cut->encode("bc"), (Ids{10 + 'b', 10 + 'c'}));
  EXPECT_FALSE(cut->token_id("<pad>"));
}

TEST(TokenizerKinds, RankFilesMayLeaveARankOut) {  // as OpenAI's p50k_base does
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    lines += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    lines += " " + std::to_string(byte) + "\n";
  }
  const Path path = Path(testing::TempDir()) / "gap.tiktoken";
  write_file(path, lines + "YWI= 256\nYWJj 258\n");
  const auto tokenizer = load_tiktoken(path, "v2", 10, 10 + 259);
  EXPECT_EQ(tokenizer->encode("abcab"), (Ids{10 + 258, 10 + 256}));
  EXPECT_EQ(tokenizer->decode(Ids{10 + 258, 10 + 256}), "abcab");
  EXPECT_EQ(error_of([&] { tokenizer->decode(Ids{10 + 257}); }),
            path.string() + " leaves token 267 out");
  write_file(path, lines + "YWI= 255\n");
  EXPECT_EQ(
      error_of([&] { load_tiktoken(path, "v2", 10, 266); }),
      path.string() + ":257: rank 255 should be at least 256, as ranks rise, and below 4194303");
  write_file(path, lines + "YWI=\n");
  EXPECT_EQ(error_of([&] { load_tiktoken(path, "v2", 10, 266); }),
            path.string() + ":257: the line should be a token in base64, a space and a rank");
}

TEST(TokenizerKinds, Gpt2FilesAreAByteLevelBpe) {
  const Json json = Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers/bpe_gpt2.json"));
  const Path folder = testing::TempDir();
  Json vocabulary = json["tokenizer"]["model"]["vocab"];
  vocabulary["<|endoftext|>"] = vocabulary.size();
  write_file(folder / "vocab.json", vocabulary.dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["tokenizer"]["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  write_file(folder / "merges.txt", merges);
  TokenizerConfig config;
  config.tokenizer_type = "GPT2BPETokenizer";
  config.vocab_file = (folder / "vocab.json").string();
  config.merge_file = (folder / "merges.txt").string();
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->eod(), vocabulary["<|endoftext|>"].get<int32_t>());
  for (size_t i = 0; i < json["texts"].size(); ++i) {  // the fixture puts a space before a text
    const std::string text = json["texts"][i];
    if (text.empty() || text[0] == ' ' || text.find('<') != std::string::npos) continue;
    EXPECT_EQ(tokenizer->encode(" " + text), json["ids"][i].get<Ids>()) << text;
  }
}

TEST(TokenizerJson, NamesWhatIsNotSupported) {
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

TEST(TokenizerJson, NamesWhatIsBroken) {
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

TEST(TokenizerText, InvalidUtf8IsReplacedAsPythonDoes) {
  const auto tokenizer = fixture("bpe_llama3");
  EXPECT_EQ(tokenizer->encode("a\xFF\xE4\xB8z\xC0\x80\xF0\x9F\x91"),
            tokenizer->encode("a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a\xFFz")), "a\uFFFDz");
}

TEST(TokenizerText, AnIdBeyondTheVocabularyIsAnError) {
  const auto tokenizer = fixture("bpe_llama3");
  EXPECT_EQ(error_of([&] { tokenizer->decode(Ids{700}); }),
            "token 700 is not in 0..699 of bpe_llama3");
}

TEST(TokenizerText, StreamsNeverShowHalfOfACharacter) {
  const std::string text = "The Größe 中文 👩‍👩‍👧‍👦 end";
  for (const char* name : {"bpe_llama3", "bpe_byte_fallback", "unigram_fallback"}) {
    const auto tokenizer = fixture(name);
    const Ids ids = tokenizer->encode(text);
    StreamDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      std::string storage;
      EXPECT_EQ(valid_utf8(part, storage), part);
      EXPECT_EQ(part.find("\uFFFD"), std::string::npos) << name << " after " << shown;
      shown += part;
    }
    EXPECT_EQ(shown + stream.finish(), tokenizer->decode(ids)) << name;
  }
}

TEST(TokenizerText, AMegabyteWithoutASpaceIsNotQuadratic) {
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

TEST(TokenizerTraining, LearnsFrequentPairsAndReadsItsOwnFile) {
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
