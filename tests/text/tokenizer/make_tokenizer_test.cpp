#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "phalanx/base/file.h"
#include "phalanx/text/tokenizer.h"
#include "phalanx/text/tokenizer_config.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

TEST(MakeTokenizer, BytesAreTheirOwnTokens) {
  TokenizerConfig config;
  config.tokenizer_type = "ByteTokenizer";
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->encode("a\xFF"), (Ids{97, 255}));
  EXPECT_EQ(tokenizer->decode(Ids{97, 255}), "a\xFF");
  EXPECT_EQ(tokenizer->eod(), 256);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
}

TEST(MakeTokenizer, NullTokenizerNeedsAVocabularySize) {
  TokenizerConfig config;
  config.tokenizer_type = "NullTokenizer";
  EXPECT_EQ(error_of([&] { make_tokenizer(config); }),
            "--tokenizer-type NullTokenizer needs --vocab-size");
  const auto tokenizer = make_tokenizer(config, 100);
  EXPECT_EQ(tokenizer->encode("Aé"), (Ids{65, 233 % 100}));
  EXPECT_EQ(tokenizer->decode(Ids{65, 33}), "65 33");
  EXPECT_EQ(tokenizer->eod(), 99);
  EXPECT_FALSE(tokenizer->pad());
}

TEST(MakeTokenizer, Gpt2FilesAreAByteLevelBpe) {
  const Json json = Json::parse(read_file(Path(PHX_TEST_DATA) / "tokenizers/bpe_gpt2.json"));
  const TempFolder folder;
  Json vocabulary = json["tokenizer"]["model"]["vocab"];
  vocabulary["<|endoftext|>"] = vocabulary.size();
  write_file(folder / "vocab.json", vocabulary.dump());
  std::string merges = "#version: 0.2\n";
  for (const Json& merge : json["tokenizer"]["model"]["merges"]) {
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  }
  write_file(folder / "merges.txt", merges);
  TokenizerConfig config;
  config.tokenizer_type = "GPT2BPETokenizer";
  config.vocab_file = (folder / "vocab.json").string();
  config.merge_file = (folder / "merges.txt").string();
  const auto tokenizer = make_tokenizer(config);
  EXPECT_EQ(tokenizer->eod(), vocabulary["<|endoftext|>"].get<int32_t>());
  for (size_t i = 0; i < json["texts"].size(); ++i) {  // the fixture puts a space before a text
    const std::string text = json["texts"][i];
    if (text.empty() || text[0] == ' ' || text.find('<') != std::string::npos) continue;
    EXPECT_EQ(tokenizer->encode(" " + text), json["ids"][i].get<Ids>()) << text;
  }
}

TEST(MakeTokenizer, FlagsThatAKindNeedsAreNamed) {
  const auto message = [](TokenizerConfig config) {
    return error_of([&] { make_tokenizer(config); });
  };
  EXPECT_EQ(message({}), "--tokenizer-type is missing");
  EXPECT_EQ(message({.tokenizer_type = "HuggingFaceTokenizer"}),
            "--tokenizer-type HuggingFaceTokenizer needs --tokenizer-model");
  EXPECT_EQ(message({.tokenizer_type = "GPT2BPETokenizer", .vocab_file = "vocab.json"}),
            "--tokenizer-type GPT2BPETokenizer needs --vocab-file and --merge-file");
  EXPECT_EQ(message({.tokenizer_type = "Abacus", .tokenizer_model = "a.model"}),
            "--tokenizer-type Abacus is not in this build");
}

TEST(MakeTokenizer, MergeFilesMayHaveACommentEmptyLinesAndCarriageReturns) {
  const TempFolder folder;
  write_file(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2})");
  write_file(folder / "merges.txt", "#version: 0.2\r\n\r\na b\r\n");
  const auto tokenizer = make_tokenizer({.tokenizer_type = "GPT2BPETokenizer",
                                         .vocab_file = folder / "vocab.json",
                                         .merge_file = folder / "merges.txt"});
  EXPECT_EQ(tokenizer->encode("aab"), (Ids{0, 2}));
  EXPECT_FALSE(tokenizer->eod()) << "the vocabulary has no <|endoftext|>";
}

TEST(MakeTokenizer, AVocabularyThatIsNoObjectIsRefusedByItsFile) {
  const TempFolder folder;
  write_file(folder / "vocab.json", "[]");
  write_file(folder / "merges.txt", "");
  EXPECT_EQ(error_of([&] {
              make_tokenizer({.tokenizer_type = "GPT2BPETokenizer",
                              .vocab_file = folder / "vocab.json",
                              .merge_file = folder / "merges.txt"});
            }),
            (folder / "vocab.json").string() + " should be a JSON object of tokens and ids");
}

}  // namespace
}  // namespace phx
