// Text to token ids and back. Which tokenizer it is does not matter to preprocessing, chat data,
// sampling or inspection.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

struct TokenizerConfig;

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text` to `ids`; no special token is added around it. Text may hold any
  // bytes. Safe to call from several threads at once.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // The same with what the tokenizer itself puts around a text: Llama's <|begin_of_text|>, BERT's
  // [CLS] and [SEP]. Megatron's preprocessing does so with Hugging Face tokenizers.
  virtual void encode_with_special(std::string_view text, std::vector<int32_t>& ids) const {
    encode(text, ids);
  }
  // The text of `ids`, special tokens included; an id outside of the vocabulary is an error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const = 0;  // ids are in 0..vocab_size - 1, added tokens included
  // The id of a whole token ("<|im_start|>"); none if the vocabulary does not hold it.
  virtual std::optional<int32_t> token_id(std::string_view token) const = 0;
  virtual std::string token_text(int32_t id) const = 0;  // as the vocabulary spells it

  virtual std::optional<int32_t> eod() const { return std::nullopt; }  // ends a document
  virtual std::optional<int32_t> bos() const { return std::nullopt; }
  virtual std::optional<int32_t> eos() const { return std::nullopt; }
  virtual std::optional<int32_t> pad() const { return std::nullopt; }

  // "BPE of 128,256 tokens from llama/tokenizer.json".
  virtual std::string description() const = 0;

  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// --tokenizer-type; where it is not given, the type of the files: GPT-2's two, or what
// --tokenizer-model is by its content. Empty if no flag says anything.
std::string tokenizer_type_of(const TokenizerConfig& config);

// The tokenizer that --tokenizer-type and its companions ask for. `vocab_size` is --vocab-size,
// which the kinds need that have no file (NullTokenizer) or may be cut (TikTokenizer).
std::unique_ptr<const Tokenizer> make_tokenizer(const TokenizerConfig& config,
                                                std::optional<int64_t> vocab_size = std::nullopt);

// Text while its tokens come: what is complete so far, never half of a character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string push(int32_t id);  // the text that this token completes; may be empty
  std::string finish();          // what is left, with U+FFFD for a character without its end

 private:
  std::string advance(bool all);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;  // the last ones: those that are shown, then those that are pending
  size_t shown_ = 0;
};

}  // namespace phx
