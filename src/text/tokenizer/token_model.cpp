#include "phalanx/text/tokenizer/token_model.h"

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/bpe_model.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

// Old files have no "type": the fields tell it.
std::string model_type(const JsonFields& fields) {
  if (!fields.is_null("type")) return fields.type();
  return fields.is_null("merges") ? "WordPiece" : "BPE";
}

Vocabulary read_vocabulary(const JsonFields& fields) {
  Vocabulary vocabulary;
  for (const auto& [token, id] : fields.object("vocab").items()) {
    PHX_CHECK(id.is_number_integer(), "the id of the token ", token,
              " should be an integer, but is ", id.type_name());
    vocabulary.add(token, id.get<int64_t>());
  }
  return vocabulary;
}

// The bytes that ByteLevel's characters stand for; none when a character is not one of them.
std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const int byte = code_to_byte(next_code(token, at));
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::pair<std::string, std::string> read_merge(const Json& merge, size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  PHX_CHECK(merge.is_string(), "merge ", index, " should be two tokens, but is ", json_text(merge));
  const std::string text = merge.get<std::string>();
  const size_t space = text.find(' ');
  PHX_CHECK(space != std::string::npos && text.find(' ', space + 1) == std::string::npos, "merge ",
            index, " should be two tokens with a space between them, but is ", json_text(merge));
  return {text.substr(0, space), text.substr(space + 1)};
}

std::unique_ptr<const TokenModel> make_bpe(const JsonFields& fields, bool bytes) {
  BpeOptions options{.bytes = bytes,
                     .ignore_merges = fields.flag("ignore_merges", false),
                     .byte_fallback = fields.flag("byte_fallback", false),
                     .fuse_unknown = fields.flag("fuse_unk", false),
                     .prefix = fields.text("continuing_subword_prefix", ""),
                     .suffix = fields.text("end_of_word_suffix", "")};
  if (!fields.is_null("unk_token")) options.unknown = fields.text("unk_token");
  if (!fields.is_null("dropout")) {
    const Json& dropout = fields.at("dropout");
    if (!dropout.is_number() || dropout.get<double>() != 0) fields.refuse("dropout");
  }
  Vocabulary vocabulary = read_vocabulary(fields);
  const auto id_of = [&](const std::string& token, size_t index) {
    const auto id = vocabulary.find(token);
    PHX_CHECK(id.has_value(), "merge ", index, " needs the token ", token,
              ", which is not in the vocabulary");
    return *id;
  };
  std::vector<BpeModel::Merge> merges;
  const Json& list = fields.array("merges");
  PHX_CHECK(list.size() < MergeTable::kMaxRanks, "a BPE should have fewer than ",
            MergeTable::kMaxRanks, " merges, but has ", list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [left, right] = read_merge(list[i], i);
    const size_t skip = std::min(options.prefix.size(), right.size());
    merges.push_back({.left = id_of(left, i),
                      .right = id_of(right, i),
                      .merged = id_of(left + right.substr(skip), i),
                      .rank = static_cast<uint32_t>(i)});
  }
  Vocabulary keys;
  if (bytes) {
    for (const auto& [token, id] : vocabulary.ids()) {
      if (const auto spelled = spelled_bytes(token)) keys.add(*spelled, id);
    }
    options.unknown.reset();  // every byte has a token, or there was none
    options.byte_fallback = false;
  } else {
    keys = vocabulary;
  }
  return std::make_unique<BpeModel>(std::move(vocabulary), std::move(keys), merges,
                                    std::move(options));
}

}  // namespace

void TokenModel::encode_words(WordPattern pattern, std::string_view text,
                              std::vector<int32_t>& ids) const {
  for_word_pattern(pattern, [&]<WordPattern kPattern>() {
    for (size_t at = 0; at < text.size();) {
      const size_t end = word_end<kPattern>(text, at);
      encode_word(text.substr(at, end - at), ids);
      at = end;
    }
  });
}

bool takes_bytes(const Json& model) {
  const JsonFields fields(model, "model");
  if (model_type(fields) != "BPE") return false;
  if (!fields.text("continuing_subword_prefix", "").empty()) return false;
  if (!fields.text("end_of_word_suffix", "").empty()) return false;
  const Json& vocabulary = fields.object("vocab");
  bool all = true;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_code(spelled, byte_to_code(static_cast<uint8_t>(byte)));
    all = all && vocabulary.contains(spelled);
  }
  return all || (fields.is_null("unk_token") && !fields.flag("byte_fallback", false));
}

std::unique_ptr<const TokenModel> make_token_model(const Json& model, bool bytes) {
  const JsonFields fields(model, "model");
  const std::string type = model_type(fields);
  if (type == "BPE") return make_bpe(fields, bytes);
  if (type == "Unigram") return make_unigram(model);
  if (type == "WordPiece") return make_word_piece(model);
  if (type == "WordLevel") return make_word_level(model);
  fields.refuse_type();
}

}  // namespace phx
