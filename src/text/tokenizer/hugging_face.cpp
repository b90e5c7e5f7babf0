#include "phalanx/text/tokenizer/hugging_face.h"

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/json_fields.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

// Components nest by recursion: a file that nests absurdly deep is refused before it is parsed.
void check_depth(std::string_view json) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      PHX_CHECK(++depth <= kMaxDepth, "the file nests deeper than ", kMaxDepth, " levels");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

const Json& member(const Json& json, const char* name) {
  static const Json none;
  const auto found = json.find(name);
  return found == json.end() ? none : *found;
}

AddedToken read_added_token(const Json& json) {
  const JsonFields fields(json, "added token");
  const bool special = fields.flag("special", false);
  return {.content = fields.text("content"),
          .single_word = fields.flag("single_word", false),
          .lstrip = fields.flag("lstrip", false),
          .rstrip = fields.flag("rstrip", false),
          .normalized = fields.flag("normalized", !special),
          .special = special};
}

// "eos_token": "</s>", or the same as an added token.
std::optional<std::string> role(const Json& config, const char* name) {
  const Json& value = member(config, name);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && member(value, "content").is_string()) {
    return member(value, "content").get<std::string>();
  }
  return std::nullopt;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const Json& json, const SpecialRoles& roles,
                                           const std::string& source)
    : source_(source) {
  PHX_CHECK(json.is_object() && json.contains("model"),
            "this is no tokenizer.json: it has no \"model\"");
  const Json& model = json.at("model");
  normalizer_ = make_normalizer(member(json, "normalizer"));
  const bool bytes = takes_bytes(model);
  pre_tokenizers_ = make_pre_tokenizers(
      member(json, "pre_tokenizer"), bytes ? ByteLevelMapping::leave_out : ByteLevelMapping::keep);
  model_ = make_token_model(model, pre_tokenizers_.bytes);
  decoder_ = make_decoder(member(json, "decoder"));
  read_added_tokens(member(json, "added_tokens"));
  read_post_processor(member(json, "post_processor"));
  check_special_ids();
  const auto id_of = [&](const std::optional<std::string>& token) -> std::optional<int32_t> {
    if (!token) return std::nullopt;
    return token_id(*token);
  };
  bos_ = id_of(roles.bos);
  eos_ = id_of(roles.eos);
  pad_ = id_of(roles.pad);
}

void HuggingFaceTokenizer::read_added_tokens(const Json& json) {
  size_ = model_->vocabulary().size();
  if (json.is_null()) return;
  PHX_CHECK(json.is_array(), "added_tokens should be a list, but is ", json.type_name());
  std::vector<AddedToken> tokens;
  for (const Json& entry : json) {
    AddedToken token = read_added_token(entry);
    if (token.content.empty()) continue;
    // The library's ids, whatever the file says: the model's for a token that the model has, else
    // the next one after the model's tokens and the added ones. They differ in odd files only.
    const int64_t next = std::max(added_.size(), model_->vocabulary().count());
    token.id = static_cast<int32_t>(token_id(token.content).value_or(next));
    added_.add(token.content, token.id);
    tokens.push_back(std::move(token));
  }
  size_ = std::max(size_, added_.size());
  for (const bool special : {true, false}) {  // the order in which equal texts win
    for (const AddedToken& token : tokens) {
      if (token.special != special) continue;
      if (!token.normalized) {
        raw_tokens_.add(token, token.content);
      } else if (normalizer_) {
        normalized_tokens_.add(token, normalizer_->apply(token.content));
      } else {
        normalized_tokens_.add(token, token.content);
      }
    }
  }
}

void HuggingFaceTokenizer::read_post_processor(const Json& json) {
  if (json.is_null()) return;
  const JsonFields fields(json, "post-processor");
  const std::string kind = fields.type();
  if (kind == "ByteLevel") return;  // changes offsets only
  if (kind == "Sequence") {
    for (const Json& part : fields.array("processors")) read_post_processor(part);
    return;
  }
  const auto pair_id = [&](const char* name) {
    const Json& pair = fields.array(name);
    PHX_CHECK(pair.size() == 2 && pair[1].is_number_integer(), "the field ", name,
              " of the post-processor should be [token, id]");
    return pair[1].get<int32_t>();
  };
  if (kind == "BertProcessing" || kind == "RobertaProcessing") {
    before_.insert(before_.begin(), pair_id("cls"));
    after_.push_back(pair_id("sep"));
    return;
  }
  if (kind != "TemplateProcessing") fields.refuse_type();
  std::vector<int32_t> before, after;
  bool text = false;
  for (const Json& part : fields.array("single")) {
    if (part.is_object() && part.contains("Sequence")) {
      PHX_CHECK(!text, "the post-processor's template has the text twice, which is not supported");
      text = true;
      continue;
    }
    PHX_CHECK(part.is_object() && part.contains("SpecialToken"),
              "the post-processor's template has ", json_text(part), ", which is not supported");
    const std::string name = JsonFields(part.at("SpecialToken"), "special token").text("id");
    const JsonFields token(member(fields.object("special_tokens"), name.c_str()),
                           "post-processor's special token " + name);
    for (const Json& id : token.array("ids")) {
      PHX_CHECK(id.is_number_integer(), "an id of the special token ", name, " is no integer");
      (text ? after : before).push_back(id.get<int32_t>());
    }
  }
  PHX_CHECK(text, "the post-processor's template leaves the text out, which is not supported");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
}

void HuggingFaceTokenizer::check_special_ids() const {
  for (const auto* ids : {&before_, &after_}) {
    for (const int32_t id : *ids) {
      PHX_CHECK(id >= 0 && id < size_, "the post-processor adds the token ", id,
                ", which is not in 0..", size_ - 1);
    }
  }
}

void HuggingFaceTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::string storage;
  const std::string_view valid = valid_utf8(text, storage);
  raw_tokens_.split(
      valid,
      [&](size_t begin, size_t end) {
        encode_plain(valid.substr(begin, end - begin), begin == 0, ids);
      },
      [&](int32_t id) { ids.push_back(id); });
}

void HuggingFaceTokenizer::encode_with_special(std::string_view text,
                                               std::vector<int32_t>& ids) const {
  ids.insert(ids.end(), before_.begin(), before_.end());
  encode(text, ids);
  ids.insert(ids.end(), after_.begin(), after_.end());
}

void HuggingFaceTokenizer::encode_plain(std::string_view text, bool first,
                                        std::vector<int32_t>& ids) const {
  std::string normalized;
  if (normalizer_) {
    normalized = normalizer_->apply(text);
    text = normalized;
  }
  normalized_tokens_.split(
      text,
      [&](size_t begin, size_t end) {
        encode_normalized(text.substr(begin, end - begin), first && begin == 0, ids);
      },
      [&](int32_t id) { ids.push_back(id); });
}

void HuggingFaceTokenizer::encode_normalized(std::string_view text, bool first,
                                             std::vector<int32_t>& ids) const {
  const auto& stages = pre_tokenizers_.stages;
  if (stages.empty()) return model_->encode_word(text, ids);
  if (stages.size() == 1 && stages[0]->words()) {
    return model_->encode_words(*stages[0]->words(), text, ids);
  }
  Pieces pieces;
  pieces.reset(text, first);
  for (const auto& stage : stages) stage->cut(pieces);
  model_->encode_pieces(pieces, ids);
}

std::string HuggingFaceTokenizer::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) tokens.push_back(token_text(id));
  if (decoder_) {
    decoder_->decode(tokens);
  } else {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(tokens[i].begin(), ' ');
  }
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

std::optional<int32_t> HuggingFaceTokenizer::token_id(std::string_view token) const {
  if (const auto id = added_.find(token)) return id;
  return model_->vocabulary().find(token);
}

std::string HuggingFaceTokenizer::token_text(int32_t id) const {
  PHX_CHECK(id >= 0 && id < size_, "token ", id, " is not in 0..", size_ - 1, " of ", source_);
  if (added_.has(id)) return added_.token(id);
  return model_->vocabulary().has(id) ? model_->vocabulary().token(id) : std::string();
}

std::string HuggingFaceTokenizer::description() const {
  return str_cat(model_->name(), " of ", format_thousands(size_), " tokens from ", source_);
}

std::unique_ptr<const HuggingFaceTokenizer> parse_hugging_face(std::string_view json,
                                                               const SpecialRoles& roles,
                                                               const std::string& source) {
  try {
    check_depth(json);
    return std::make_unique<HuggingFaceTokenizer>(parse_json(json), roles, source);
  } catch (const Json::exception& error) {
    throw Error(str_cat(source, ": ", error.what()));
  } catch (const Error& error) {
    throw Error(str_cat(source, ": ", error.what()));
  }
}

std::unique_ptr<const HuggingFaceTokenizer> load_hugging_face(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  const Path file = folder ? Path(path) / "tokenizer.json" : Path(path);
  SpecialRoles roles;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const Path beside = file.parent_path() / name;
    if (!std::filesystem::exists(beside)) continue;
    const Json config = try_parse_json(read_file(beside));
    PHX_CHECK(config.is_object(), beside.string(), " should be a JSON object, but is not");
    for (const auto& [key, text] : {std::pair{"bos_token", &roles.bos},
                                    {"eos_token", &roles.eos},
                                    {"pad_token", &roles.pad}}) {
      if (auto found = role(config, key)) *text = std::move(found);
    }
  }
  return parse_hugging_face(read_file(file), roles, file.string());
}

}  // namespace phx
