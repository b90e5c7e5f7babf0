#include "phalanx/text/tokenizer/rank_tokenizer.h"

#include <charconv>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/added_tokens.h"
#include "phalanx/text/tokenizer/bpe_model.h"
#include "phalanx/text/tokenizer/charsmap.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/regex.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMegatronSpecials[] = {"<unk>", "<s>",   "</s>", "<mask>",
                                                  "<pad>", "<cls>", "<sep>"};

class RankTokenizer final : public Tokenizer {
 public:
  RankTokenizer(const std::vector<std::string>& ranks, const RankOptions& options,
                const std::string& source)
      : source_(source), words_(known_pattern(options.pattern)) {
    if (!words_) regex_ = std::make_unique<Regex>(options.pattern, RegexFlavor::rust);
    const auto first = static_cast<int64_t>(options.specials.size());
    size_ = options.vocab_size;
    PHX_CHECK(first < size_, "a vocabulary of ", size_, " has no room for ", first,
              " special tokens and the bytes");
    const auto count = static_cast<size_t>(size_ - first);
    PHX_CHECK(ranks.size() >= count, source, " has ", ranks.size(), " tokens, but ", count,
              " are needed beside ", first, " special ones for a vocabulary of ", size_,
              "\n  hint: add --vocab-size ", ranks.size() + options.specials.size());
    Vocabulary keys;
    for (size_t i = 0; i < count; ++i) {
      if (ranks[i].empty()) continue;
      PHX_CHECK(!keys.find(ranks[i]), source, ": the token of rank ", i, " is there already");
      keys.add(ranks[i], first + static_cast<int64_t>(i));
    }
    for (int byte = 0; byte < 256; ++byte) {
      const char raw = static_cast<char>(byte);
      PHX_CHECK(keys.find(std::string_view(&raw, 1)), source, ": no token is the byte ", byte);
    }
    for (int64_t i = 0; i < first; ++i) {
      const std::string& text = options.specials[static_cast<size_t>(i)];
      specials_.add(text, i);
      if (options.find_specials) {
        added_.add({.content = text, .id = static_cast<int32_t>(i), .special = true}, text);
      }
    }
    model_ = std::make_unique<BpeModel>(keys, keys, merges_of(ranks, count, keys),
                                        BpeOptions{.bytes = true, .ignore_merges = true});
  }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string storage;
    const std::string_view valid = valid_utf8(text, storage);
    added_.split(
        valid,
        [&](size_t begin, size_t end) { encode_plain(valid.substr(begin, end - begin), ids); },
        [&](int32_t id) { ids.push_back(id); });
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string bytes, storage;
    for (const int32_t id : ids) bytes += token_bytes(id);
    return std::string(valid_utf8(bytes, storage));
  }
  int64_t vocab_size() const override { return size_; }
  std::optional<int32_t> token_id(std::string_view token) const override {
    if (const auto id = specials_.find(token)) return id;
    return model_->vocabulary().find(token);
  }
  std::string token_text(int32_t id) const override {
    std::string storage;
    return std::string(valid_utf8(token_bytes(id), storage));
  }
  std::optional<int32_t> eod() const override { return eos(); }
  std::optional<int32_t> bos() const override { return specials_.find("<s>"); }
  std::optional<int32_t> eos() const override { return specials_.find("</s>"); }
  std::optional<int32_t> pad() const override { return specials_.find("<pad>"); }
  std::string description() const override {
    return str_cat("BPE of ", format_thousands(size_), " tokens from ", source_);
  }

 private:
  // Any two tokens whose texts together are a token merge into it, by its rank.
  static std::vector<BpeModel::Merge> merges_of(const std::vector<std::string>& ranks, size_t count,
                                                const Vocabulary& keys) {
    std::vector<BpeModel::Merge> merges;
    for (size_t i = 0; i < count; ++i) {
      const std::string_view token = ranks[i];
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const auto left = keys.find(token.substr(0, cut)), right = keys.find(token.substr(cut));
        if (!left || !right) continue;
        merges.push_back({.left = *left,
                          .right = *right,
                          .merged = *keys.find(token),
                          .rank = static_cast<uint32_t>(i)});
      }
    }
    return merges;
  }

  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
    if (words_) return model_->encode_words(*words_, text, ids);
    size_t begin, end;
    for (size_t from = 0; from < text.size() && regex_->find(text, from, begin, end);) {
      if (end > begin) model_->encode_word(text.substr(begin, end - begin), ids);
      from = end > begin ? end : end + 1;
    }
  }

  const std::string& token_bytes(int32_t id) const {
    PHX_CHECK(id >= 0 && id < size_, "token ", id, " is not in 0..", size_ - 1, " of ", source_);
    if (specials_.has(id)) return specials_.token(id);
    PHX_CHECK(model_->vocabulary().has(id), source_, " leaves token ", id, " out");
    return model_->vocabulary().token(id);
  }

  std::string source_;
  int64_t size_ = 0;
  std::optional<WordPattern> words_;
  std::unique_ptr<const Regex> regex_;
  std::unique_ptr<const BpeModel> model_;
  AddedTokens added_;
  Vocabulary specials_;
};

// A list of {"rank", "token_bytes"}.
std::vector<std::string> ranks_of(const Json& list, const std::string& source) {
  PHX_CHECK(list.is_array(), source, " should hold a list of tokens, but holds ", list.type_name());
  std::vector<std::string> ranks;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields token(list[i], "token");
    PHX_CHECK(token.number("rank", -1) == static_cast<int64_t>(i), source, ": token ", i,
              " has the rank ", token.number("rank", -1), ", but ranks should count from 0");
    ranks.push_back(decode_base64(token.text("token_bytes")));
    PHX_CHECK(!ranks.back().empty(), source, ": the token of rank ", i, " is empty");
  }
  return ranks;
}

// Lines of "base64 rank", with rising ranks. OpenAI's p50k_base leaves a rank out, where GPT-2 has
// its end of text.
std::vector<std::string> read_rank_lines(const std::string& text, const std::string& source) {
  std::vector<std::string> ranks;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line(text.data() + begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    const char* const line_end = line.data() + line.size();
    size_t rank = 0;
    const auto read = std::from_chars(std::min(line.data() + space + 1, line_end), line_end, rank);
    PHX_CHECK(space > 0 && read.ec == std::errc() && read.ptr == line_end, source, ":", number,
              ": the line should be a token in base64, a space and a rank");
    PHX_CHECK(rank >= ranks.size() && rank < MergeTable::kMaxRanks, source, ":", number, ": rank ",
              rank, " should be at least ", ranks.size(), ", as ranks rise, and below ",
              MergeTable::kMaxRanks);
    ranks.resize(rank);
    ranks.push_back(decode_base64(line.substr(0, space)));
  }
  return ranks;
}

std::vector<std::string> special_tokens(std::vector<std::string> named, int64_t count) {
  PHX_CHECK(count >= static_cast<int64_t>(named.size()), "--tiktoken-num-special-tokens ", count,
            " should be at least ", named.size());
  for (auto i = static_cast<int64_t>(named.size()); i < count; ++i) {
    named.push_back(str_cat("<SPECIAL_", i, ">"));
  }
  return named;
}

}  // namespace

std::unique_ptr<const Tokenizer> make_rank_tokenizer(const std::vector<std::string>& ranks,
                                                     const RankOptions& options,
                                                     const std::string& source) {
  return std::make_unique<RankTokenizer>(ranks, options, source);
}

std::unique_ptr<const Tokenizer> load_tiktoken(const std::string& path, const std::string& pattern,
                                               int64_t num_special_tokens, int64_t vocab_size) {
  PHX_CHECK(pattern == "v1" || pattern == "v2", "--tiktoken-pattern ", pattern,
            " should be v1 or v2");
  const std::string text = read_file(path);
  const bool json = text.find_first_not_of(" \n\r\t") != std::string::npos &&
                    text[text.find_first_not_of(" \n\r\t")] == '[';
  const Json list = json ? try_parse_json(text) : Json();
  return make_rank_tokenizer(
      json ? ranks_of(list, path) : read_rank_lines(text, path),
      {.pattern = pattern_text(pattern == "v1" ? WordPattern::tiktoken_v1 : WordPattern::tekken),
       .specials = special_tokens({std::begin(kMegatronSpecials), std::end(kMegatronSpecials)},
                                  num_special_tokens),
       .vocab_size = vocab_size},
      path);
}

bool is_tekken(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const std::string text = read_file(path);
  // A tokenizer.json is an object, too, and large: most are told apart without parsing them.
  const size_t first = text.find_first_not_of(" \n\r\t");
  if (first == std::string::npos || text[first] != '{') return false;
  if (text.find("\"token_bytes\"") == std::string::npos) return false;
  const Json json = try_parse_json(text);
  if (!json.is_object() || !json.contains("config") || !json.contains("vocab")) return false;
  return json["config"].is_object() && json["config"].contains("pattern") &&
         json["vocab"].is_array();
}

std::unique_ptr<const Tokenizer> load_tekken(const std::string& path,
                                             std::optional<int64_t> vocab_size) {
  const Json json = try_parse_json(read_file(path));
  PHX_CHECK(json.is_object(), path, " is no JSON object");
  const JsonFields fields(json, "tekken file");
  const JsonFields config(fields.object("config"), "tekken config");
  std::vector<std::string> named = {"<unk>", "<s>", "</s>"};
  if (!fields.is_null("special_tokens")) {
    named.clear();
    for (const Json& special : fields.array("special_tokens")) {
      named.push_back(JsonFields(special, "special token").text("token_str"));
    }
  } else {
    for (const char* name : {"[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                             "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>",
                             "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
                             "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}) {
      named.emplace_back(name);
    }
  }
  return make_rank_tokenizer(
      ranks_of(fields.array("vocab"), path),
      {.pattern = config.text("pattern"),
       .specials = special_tokens(named, config.number("default_num_special_tokens", 1000)),
       .vocab_size = vocab_size.value_or(config.number("default_vocab_size", 131072)),
       .find_specials = false},  // Mistral writes control tokens as ids, never as text
      path);
}

}  // namespace phx
