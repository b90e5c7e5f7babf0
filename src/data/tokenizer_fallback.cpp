// Tokenizers without files, until the others are there.
#include "base/error.h"
#include "data/byte_tokenizer.h"
#include "data/data_config.h"
#include "data/tokenizer.h"

namespace phx {
namespace {

class Bytes : public Tokenizer {
 public:
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    return ByteTokenizer::decode(ids);
  }
  int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
  std::string token_text(int32_t id) const override { return decode(std::span(&id, 1)); }
  std::optional<int32_t> eod() const override { return ByteTokenizer::kEod; }
  std::string description() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<const Tokenizer> make_tokenizer(const DataConfig& config) {
  PHX_CHECK(config.tokenizer_type == "ByteTokenizer", "--tokenizer-type ", config.tokenizer_type,
            " is not there yet");
  return std::make_unique<Bytes>();
}

}  // namespace phx
