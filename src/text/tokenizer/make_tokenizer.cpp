
#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
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

}  // namespace

std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerConfig& config,
                                                std::optional<int64_t> vocab_size) {
  const std::string& type = config.tokenizer_type;
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
