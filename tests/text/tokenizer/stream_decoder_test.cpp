#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/file.h"
#include "phalanx/text/byte_tokenizer.h"
#include "phalanx/text/tokenizer/hugging_face.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

std::unique_ptr<const HuggingFaceTokenizer> fixture(const std::string& name) {
  const Json json = Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers" / (name + ".json")));
  return parse_hugging_face(json["tokenizer"].dump(), {.bos = "<s>", .eos = "<|end|>"}, name);
}

TEST(StreamDecoder, StreamsNeverShowHalfOfACharacter) {
  const std::string text = "The Größe 中文 👩‍👩‍👧‍👦 end";
  for (const char* name : {"bpe_llama3", "bpe_byte_fallback", "unigram_fallback"}) {
    const auto tokenizer = fixture(name);
    const Ids ids = tokenizer->encode(text);
    StreamDecoder stream(*tokenizer);
    std::string shown;
    for (const int32_t id : ids) {
      const std::string part = stream.push(id);
      std::string storage;
      EXPECT_EQ(valid_utf8(part, storage), part);
      EXPECT_EQ(part.find("\uFFFD"), std::string::npos) << name << " after " << shown;
      shown += part;
    }
    EXPECT_EQ(shown + stream.finish(), tokenizer->decode(ids)) << name;
  }
}

// Bytes as tokens, with U+FFFD for what is no character.
class Bytes final : public Tokenizer {
 public:
  void encode(std::string_view text, Ids& ids) const override {
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string bytes, storage;
    for (const int32_t id : ids) bytes += static_cast<char>(id);
    return std::string(valid_utf8(bytes, storage));
  }
  int64_t vocab_size() const override { return 256; }
  std::optional<int32_t> token_id(std::string_view) const override { return std::nullopt; }
  std::string token_text(int32_t id) const override { return std::to_string(id); }
  std::string description() const override { return "bytes"; }
  using Tokenizer::encode;
};

TEST(StreamDecoder, ACharacterComesWithItsLastByte) {
  const Bytes bytes;
  StreamDecoder stream(bytes);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.push(0xAC), "\u20ac");
  EXPECT_EQ(stream.finish(), "");
}

TEST(StreamDecoder, ACharacterWithoutItsEndIsShownAtTheEnd) {
  const Bytes bytes;
  StreamDecoder stream(bytes);
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "") << "but once";
}

TEST(StreamDecoder, BytesThatNeverBecomeACharacterAreNotWaitedForLongerThanFourTokens) {
  const Bytes bytes;
  StreamDecoder stream(bytes);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(stream.push(0xFF), "");
  EXPECT_EQ(stream.push(0xFF), "\ufffd\ufffd\ufffd\ufffd\ufffd");
}

}  // namespace
}  // namespace phx
