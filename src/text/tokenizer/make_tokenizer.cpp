#include <algorithm>
#include <cctype>
#include <fstream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/file_kind.h"
#include "phalanx/base/json.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer/hugging_face.h"
#include "phalanx/text/tokenizer/plain_tokenizers.h"
#include "phalanx/text/tokenizer/rank_tokenizer.h"
#include "phalanx/text/tokenizer/sentence_piece.h"
#include "phalanx/text/tokenizer_config.h"

namespace phx {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTiktokenVocabSize = 131072;  // Megatron's default

// GPT-2's two files as a tokenizer.json: the tokenizers are the same.
std::unique_ptr<const Tokenizer> load_gpt2(const std::string& vocab_file,
                                           const std::string& merge_file) {
  Json json = {{"model", {{"type", "BPE"}}},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  Json vocabulary = try_parse_json(read_file(vocab_file));
  PHX_CHECK(vocabulary.is_object(), vocab_file, " should be a JSON object of tokens and ids");
  const char* const end = "<|endoftext|>";
  if (vocabulary.contains(end)) {
    json["added_tokens"] = {
        {{"content", end}, {"id", vocabulary[end]}, {"special", true}, {"normalized", false}}};
  }
  json["model"]["vocab"] = std::move(vocabulary);
  Json merges = Json::array();
  const std::string text = read_file(merge_file);
  for (size_t begin = 0; begin < text.size();) {
    const size_t line_end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, line_end - begin);
    begin = line_end + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.rfind("#version", 0) != 0) merges.push_back(std::move(line));
  }
  json["model"]["merges"] = std::move(merges);
  return parse_hugging_face(json_text(json), {.eos = end}, vocab_file);
}

// "IQ== 0": a token in base64 and its rank.
bool is_rank_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == line.size()) return false;
  const auto base64 = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '+' || c == '/' || c == '=';
  };
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return std::ranges::all_of(line.substr(0, space), base64) &&
         std::ranges::all_of(line.substr(space + 1), digit);
}

}  // namespace

std::string tokenizer_type_of(const TokenizerConfig& config) {
  if (!config.tokenizer_type.empty()) return config.tokenizer_type;
  if (!config.vocab_file.empty()) return "GPT2BPETokenizer";
  const Path model = config.tokenizer_model;
  if (model.empty()) return "";
  if (!std::filesystem::is_regular_file(model)) return "HuggingFaceTokenizer";  // a folder
  const std::string_view binary = binary_kind_of(model);
  PHX_CHECK(
      binary.empty(), "--tokenizer-model ", model.native(), " is ", binary,
      ", not a tokenizer\n  hint: a tokenizer.json, a folder with one, a SentencePiece .model "
      "or a tiktoken file");
  std::string first_line;
  std::getline(std::ifstream(model, std::ios::binary), first_line);
  if (first_line.ends_with('\r')) first_line.pop_back();
  if (is_rank_line(first_line)) return "TikTokenizer";
  // JSON may begin with a line feed, a SentencePiece model does: its first field is number 1.
  const size_t begin = first_line.find_first_not_of(" \t");
  const bool json = begin != std::string::npos && first_line[begin] == '{';
  return json || model.extension() == ".json" ? "HuggingFaceTokenizer" : "SentencePieceTokenizer";
}

std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerConfig& config,
                                                std::optional<int64_t> vocab_size) {
  const std::string type = tokenizer_type_of(config);
  if (type == "ByteTokenizer") return make_byte_tokenizer();
  if (type == "NullTokenizer") {
    PHX_CHECK(vocab_size.has_value(), "--tokenizer-type NullTokenizer needs --vocab-size");
    return make_null_tokenizer(*vocab_size, config.null_tokenizer_eod_id,
                               config.null_tokenizer_pad_id);
  }
  if (type == "GPT2BPETokenizer") {
    PHX_CHECK(!config.vocab_file.empty() && !config.merge_file.empty(),
              "--tokenizer-type GPT2BPETokenizer needs --vocab-file and --merge-file");
    return load_gpt2(config.vocab_file, config.merge_file);
  }
  PHX_CHECK(!type.empty(), "--tokenizer-type is missing");
  const std::string& model = config.tokenizer_model;
  PHX_CHECK(!model.empty(), "--tokenizer-type ", type, " needs --tokenizer-model");
  if (type == "HuggingFaceTokenizer" || type == "SFTTokenizer") {
    if (is_tekken(model)) return load_tekken(model);
    return load_hugging_face(model);
  }
  if (type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" ||
      type == "Llama2Tokenizer") {
    return load_sentence_piece(model);
  }
  PHX_CHECK(type == "TikTokenizer", "--tokenizer-type ", type, " is not in this build");
  if (is_tekken(model)) return load_tekken(model, vocab_size);
  return load_tiktoken(model, config.tiktoken_pattern.empty() ? "v2" : config.tiktoken_pattern,
                       config.tiktoken_num_special_tokens, vocab_size.value_or(kTiktokenVocabSize));
}

}  // namespace phx
