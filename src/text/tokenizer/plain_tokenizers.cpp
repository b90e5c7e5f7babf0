#include "phalanx/text/tokenizer/plain_tokenizers.h"

#include <charconv>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

class Bytes final : public Tokenizer {
 public:
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    return ByteTokenizer::decode(ids);
  }
  int64_t vocab_size() const override { return ByteTokenizer::kVocabSize; }
  std::optional<int32_t> token_id(std::string_view token) const override {
    if (token == kEnd) return ByteTokenizer::kEod;
    if (token.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(token[0]);
  }
  std::string token_text(int32_t id) const override {
    return id == ByteTokenizer::kEod ? kEnd : ByteTokenizer::decode(std::span(&id, 1));
  }
  std::optional<int32_t> eod() const override { return ByteTokenizer::kEod; }
  std::optional<int32_t> eos() const override { return ByteTokenizer::kEod; }
  std::string description() const override { return "bytes, and 256 ends a document"; }

 private:
  static constexpr const char* kEnd = "<eod>";
};

class Null final : public Tokenizer {
 public:
  Null(int64_t vocab_size, int64_t eod, std::optional<int64_t> pad) : size_(vocab_size), eod_(eod) {
    PHX_CHECK(size_ > 0, "--vocab-size ", size_, " should be at least 1");
    PHX_CHECK(eod_ >= 0 && eod_ < size_, "--null-tokenizer-eod-id ", eod_, " is not in 0..",
              size_ - 1);
    if (pad && *pad >= 0) pad_ = static_cast<int32_t>(*pad);
  }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string storage;
    const std::string_view valid = valid_utf8(text, storage);
    for (size_t at = 0; at < valid.size();) {
      ids.push_back(static_cast<int32_t>(next_code(valid, at) % size_));
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) text += (text.empty() ? "" : " ") + token_text(id);
    return text;
  }
  int64_t vocab_size() const override { return size_; }
  std::optional<int32_t> token_id(std::string_view token) const override {
    int32_t id = -1;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), id);
    if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
    if (id < 0 || id >= size_) return std::nullopt;
    return id;
  }
  std::string token_text(int32_t id) const override {
    PHX_CHECK(id >= 0 && id < size_, "token ", id, " is not in 0..", size_ - 1);
    return std::to_string(id);
  }
  std::optional<int32_t> eod() const override { return static_cast<int32_t>(eod_); }
  std::optional<int32_t> eos() const override { return eod(); }
  std::optional<int32_t> pad() const override { return pad_; }
  std::string description() const override {
    return str_cat("no tokenizer, ", format_thousands(size_), " ids");
  }

 private:
  int64_t size_, eod_;
  std::optional<int32_t> pad_;
};

}  // namespace

std::unique_ptr<const Tokenizer> make_byte_tokenizer() { return std::make_unique<Bytes>(); }

std::unique_ptr<const Tokenizer> make_null_tokenizer(int64_t vocab_size, std::optional<int64_t> eod,
                                                     std::optional<int64_t> pad) {
  return std::make_unique<Null>(vocab_size, eod.value_or(vocab_size - 1), pad);
}

}  // namespace phx
