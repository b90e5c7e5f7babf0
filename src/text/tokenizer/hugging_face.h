// Hugging Face's tokenizer.json, id for id: added tokens, normalizer, pre-tokenizer, model,
// post-processor and decoder. What a file asks for and is not there is refused by name.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer/added_tokens.h"
#include "phalanx/text/tokenizer/decoder.h"
#include "phalanx/text/tokenizer/normalizer.h"
#include "phalanx/text/tokenizer/pre_tokenizer.h"
#include "phalanx/text/tokenizer/token_model.h"

namespace phx {

// The tokens with a role, by their texts; from tokenizer_config.json beside the file.
struct SpecialRoles {
  std::optional<std::string> bos, eos, pad;
};

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  // `source` is named in errors and in the description.
  HuggingFaceTokenizer(const nlohmann::json& json, const SpecialRoles& roles,
                       const std::string& source);

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  void encode_with_special(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override { return size_; }
  std::optional<int32_t> token_id(std::string_view token) const override;
  std::string token_text(int32_t id) const override;
  std::optional<int32_t> eod() const override { return eos_; }
  std::optional<int32_t> bos() const override { return bos_; }
  std::optional<int32_t> eos() const override { return eos_; }
  std::optional<int32_t> pad() const override { return pad_; }
  std::string description() const override;

  const TokenModel& model() const { return *model_; }
  std::vector<int32_t> special_before() const { return before_; }
  std::vector<int32_t> special_after() const { return after_; }

 private:
  void read_added_tokens(const nlohmann::json& json);
  void read_post_processor(const nlohmann::json& json);
  void check_special_ids() const;
  void encode_plain(std::string_view text, bool first, std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, bool first, std::vector<int32_t>& ids) const;

  std::string source_;
  std::unique_ptr<const Normalizer> normalizer_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<const TokenModel> model_;
  std::unique_ptr<const TokenDecoder> decoder_;
  AddedTokens raw_tokens_, normalized_tokens_;
  Vocabulary added_;
  int64_t size_ = 0;
  std::vector<int32_t> before_, after_;  // what the post-processor puts around a text
  std::optional<int32_t> bos_, eos_, pad_;
};

// `path`: a tokenizer.json, or the folder that holds one.
std::unique_ptr<const HuggingFaceTokenizer> load_hugging_face(const std::string& path);
// The same from a text, for tests and fuzzing.
std::unique_ptr<const HuggingFaceTokenizer> parse_hugging_face(std::string_view json,
                                                               const SpecialRoles& roles,
                                                               const std::string& source);

}  // namespace phx
