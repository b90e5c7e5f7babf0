#include "phalanx/text/tokenizer/rank_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/file.h"
#include "phalanx/text/tokenizer/charsmap.h"
#include "phalanx/text/tokenizer/word_splitter.h"
#include "phalanx/text/tokenizer_config.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

// 256 bytes, then "ab", "abc", "bc" and " a" in this order of ranks.
std::vector<std::string> small_ranks() {
  std::vector<std::string> ranks;
  for (int byte = 0; byte < 256; ++byte) ranks.emplace_back(1, static_cast<char>(byte));
  for (const char* token : {"ab", "abc", "bc", " a"}) ranks.emplace_back(token);
  return ranks;
}

TEST(RankTokenizer, RanksMergeTheLowestFirst) {
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

TEST(RankTokenizer, TiktokenFilesHaveMegatronsSpecialTokensFirst) {
  const TempFolder folder;
  const Path path = folder / "small_tiktoken.json";
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

TEST(RankTokenizer, TikTokenizerDecidesByContentAndCutsAtTheVocabularysSize) {
  const TempFolder folder;
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

TEST(RankTokenizer, RankFilesMayLeaveARankOut) {  // as OpenAI's p50k_base does
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    lines += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    lines += " " + std::to_string(byte) + "\n";
  }
  const TempFolder folder;
  const Path path = folder / "gap.tiktoken";
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

TEST(RankTokenizer, EveryByteNeedsATokenAndNoTokenStandsTwice) {
  const auto message = [](const std::vector<std::string>& ranks, int64_t size) {
    return error_of([&] { make_rank_tokenizer(ranks, {.pattern = "a", .vocab_size = size}, "r"); });
  };
  std::vector<std::string> twice = small_ranks();
  twice[259] = "ab";
  EXPECT_EQ(message(twice, 260), "r: the token of rank 259 is there already");
  std::vector<std::string> without = small_ranks();
  without[7] = "xyz";
  EXPECT_EQ(message(without, 260), "r: no token is the byte 7");
  EXPECT_EQ(message(small_ranks(), 0),
            "a vocabulary of 0 has no room for 0 special tokens and the bytes");
}

TEST(RankTokenizer, RanksOfAListCountFromZero) {
  const TempFolder folder;
  Json list = small_list();
  list[3]["rank"] = 4;
  write_file(folder / "list.json", list.dump());
  const std::string path = folder / "list.json";
  EXPECT_EQ(error_of([&] { load_tiktoken(path, "v2", 7, 267); }),
            path + ": token 3 has the rank 4, but ranks should count from 0");
  EXPECT_EQ(error_of([&] { load_tiktoken(path, "v3", 7, 267); }),
            "--tiktoken-pattern v3 should be v1 or v2");
  write_file(folder / "list.json", small_list().dump());
  EXPECT_EQ(error_of([&] { load_tiktoken(path, "v2", 6, 266); }),
            "--tiktoken-num-special-tokens 6 should be at least 7");
}

}  // namespace
}  // namespace phx
