// The "model" of a tokenizer.json: a word to its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "phalanx/text/tokenizer/pre_tokenizer.h"
#include "phalanx/text/tokenizer/vocabulary.h"

namespace phx {

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the tokens of a word, which is not empty. Safe to call from several threads.
  virtual void encode_word(std::string_view word, std::vector<int32_t>& ids) const = 0;
  // The same for every piece; a model that keeps a cache of words uses it here.
  virtual void encode_pieces(const Pieces& pieces, std::vector<int32_t>& ids) const {
    for (size_t i = 0; i < pieces.size(); ++i) encode_word(pieces[i], ids);
  }
  // Cuts `text` by the pattern and encodes the words, in one pass.
  virtual void encode_words(WordPattern pattern, std::string_view text,
                            std::vector<int32_t>& ids) const;

  virtual const char* name() const = 0;  // "BPE"
  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  Vocabulary vocabulary_;
};

// Whether the model can take bytes as they are where a ByteLevel stage would spell them with
// printable characters: a BPE without prefixes, suffixes, unknown tokens and byte fallback.
bool takes_bytes(const nlohmann::json& model);
// `bytes`: words come as bytes, while the file spells tokens in ByteLevel's characters.
std::unique_ptr<const TokenModel> make_token_model(const nlohmann::json& model, bool bytes);

std::unique_ptr<const TokenModel> make_unigram(const nlohmann::json& model);
std::unique_ptr<const TokenModel> make_word_piece(const nlohmann::json& model);
std::unique_ptr<const TokenModel> make_word_level(const nlohmann::json& model);

}  // namespace phx
