#include "phalanx/text/tokenizer/sentence_piece.h"

#include <sentencepiece_processor.h>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : source_(path) {
    // Read here, so that a missing file gets the message that missing files get.
    const auto status = processor_.LoadFromSerializedProto(read_file(path));
    PHX_CHECK(status.ok(), path, " is no SentencePiece model: ", status.ToString());
  }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string storage;
    std::vector<int> found;
    const auto status = processor_.Encode(valid_utf8(text, storage), &found);
    PHX_CHECK(status.ok(), source_, ": ", status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
  }
  std::string decode(std::span<const int32_t> ids) const override {
    for (const int32_t id : ids) check(id);
    std::string text;
    const auto status = processor_.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
    PHX_CHECK(status.ok(), source_, ": ", status.ToString());
    return text;
  }
  int64_t vocab_size() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> token_id(std::string_view token) const override {
    const int id = processor_.PieceToId(token);
    if (processor_.IdToPiece(id) != token) return std::nullopt;  // the unknown one stands in
    return id;
  }
  std::string token_text(int32_t id) const override {
    check(id);
    return processor_.IdToPiece(id);
  }
  std::optional<int32_t> eod() const override { return eos(); }
  std::optional<int32_t> bos() const override { return known(processor_.bos_id()); }
  std::optional<int32_t> eos() const override { return known(processor_.eos_id()); }
  std::optional<int32_t> pad() const override { return known(processor_.pad_id()); }
  std::string description() const override {
    return str_cat("SentencePiece of ", format_thousands(vocab_size()), " tokens from ", source_);
  }

 private:
  static std::optional<int32_t> known(int id) {
    if (id < 0) return std::nullopt;
    return id;
  }
  void check(int32_t id) const {
    PHX_CHECK(id >= 0 && id < vocab_size(), "token ", id, " is not in 0..", vocab_size() - 1,
              " of ", source_);
  }

  std::string source_;
  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<const Tokenizer> load_sentence_piece(const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(path);
}

}  // namespace phx
