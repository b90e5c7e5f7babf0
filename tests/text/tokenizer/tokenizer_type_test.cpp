// Which tokenizer a file is, where no flag says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer_config.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::string type_of(const Path& model) {
  TokenizerConfig config;
  config.tokenizer_model = model.string();
  return tokenizer_type_of(config);
}

TEST(TokenizerType, IsThatOfTheFile) {
  const Path samples = Path(PHX_TEST_DATA) / "tokenizers";
  EXPECT_EQ(type_of(samples / "bpe_llama3.json"), "HuggingFaceTokenizer");
  EXPECT_EQ(type_of(samples / "sentencepiece.model"), "SentencePieceTokenizer");
  EXPECT_EQ(type_of(samples), "HuggingFaceTokenizer") << "a folder";
}

TEST(TokenizerType, ARankFileIsOneWhateverItsName) {
  const TempFolder folder;
  write_file(folder / "tokenizer.model", "IQ== 0\nIg== 1\n");  // so Llama 3 names its own
  EXPECT_EQ(type_of(folder / "tokenizer.model"), "TikTokenizer");
}

TEST(TokenizerType, TheFlagAndGpt2sFilesDecide) {
  TokenizerConfig config;
  EXPECT_EQ(tokenizer_type_of(config), "");
  config.vocab_file = "vocab.json";
  EXPECT_EQ(tokenizer_type_of(config), "GPT2BPETokenizer");
  config.tokenizer_type = "ByteTokenizer";
  EXPECT_EQ(tokenizer_type_of(config), "ByteTokenizer");
}

TEST(TokenizerType, AModelOfAnotherKindIsNamed) {
  const TempFolder folder;
  write_file(folder / "model.gguf", "GGUF and more");
  EXPECT_THAT(error_of([&] { type_of(folder / "model.gguf"); }),
              HasSubstr("model.gguf is a GGUF model, not a tokenizer"));
}

}  // namespace
}  // namespace phx
