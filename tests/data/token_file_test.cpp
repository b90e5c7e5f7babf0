#include "phalanx/data/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/error.h"
#include "phalanx/text/byte_tokenizer.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void write_tokens(const Path& path, std::vector<int32_t> tokens) {
  TokenFileWriter writer(path);
  writer.append(tokens);
  writer.commit();
}

TEST(ByteTokenizer, BytesComeBack) {
  const std::string text = "a\xff\xc3\xa4";
  const auto tokens = ByteTokenizer::encode(text);
  EXPECT_THAT(tokens, ElementsAre('a', 255, 0xc3, 0xa4));
  EXPECT_EQ(ByteTokenizer::decode(tokens), text);
  EXPECT_EQ(ByteTokenizer::decode(std::vector<int32_t>{'a', ByteTokenizer::kEod, 'b'}), "a\nb");
  EXPECT_THROW(ByteTokenizer::decode(std::vector<int32_t>{257}), Error);
}

TEST(TokenFile, HoldsLittleEndianIdsAndNothingElse) {
  const TempFolder folder;
  write_tokens(folder / "x.u16", {1, 256, 65535});
  EXPECT_EQ(read_file(folder / "x.u16"), std::string("\x01\x00\x00\x01\xff\xff", 6));
  write_tokens(folder / "x.i32", {1, 1 << 24});
  EXPECT_EQ(read_file(folder / "x.i32"), std::string("\x01\x00\x00\x00\x00\x00\x00\x01", 8));
}

TEST(TokenFile, SamplesShareOneTokenWithTheirNeighbours) {
  for (const char* name : {"x.u16", "x.i32"}) {
    const TempFolder folder;
    write_tokens(folder / name, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    const TokenFile file(folder / name);
    EXPECT_EQ(file.num_samples(4), 2);
    EXPECT_THAT(file.sample(0, 4), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(file.sample(1, 4), ElementsAre(4, 5, 6, 7, 8));
    EXPECT_EQ(file.num_samples(9), 1);
    EXPECT_EQ(file.num_samples(10), 0);
    EXPECT_EQ(file.largest_token(), 9);
    EXPECT_THAT(error_of([&] { file.sample(2, 4); }),
                HasSubstr("sample 2 is not in 0..1 (10 tokens, sequence length 4)"));
  }
}

TEST(TokenFile, ValidationIsTheEndOfTheFile) {
  const TempFolder folder;
  write_tokens(folder / "x.u16", std::vector<int32_t>(101, 7));
  const TokenFile file(folder / "x.u16");  // 50 samples of 2
  const SampleSplit split = file.split(2, {0.7, 0.1, 0.2});
  EXPECT_EQ(split.train.first, 0);
  EXPECT_EQ(split.train.count, 35);
  EXPECT_EQ(split.valid.first, 35);
  EXPECT_EQ(split.valid.count, 5);
  EXPECT_EQ(split.test.first, 40);
  EXPECT_EQ(split.test.count, 10);
  EXPECT_EQ(file.split(2, {1, 0, 0}).train.count, 50);
  EXPECT_EQ(file.split(2, {1 - 1e-9, 1e-9, 0}).valid.count, 1);
  EXPECT_EQ(file.split(2, {0.5, 0, 0.5}).train.count, 25) << "the test's share is not trained on";
  EXPECT_THAT(error_of([&] {
                file.split(100, {0.9, 0.1, 0});
              }),
              HasSubstr("leave none to train on"));
  EXPECT_THAT(error_of([&] { file.split(101, {0.9, 0.1, 0}); }), HasSubstr("a sample needs"));
  EXPECT_THAT(error_of([&] { file.split(2, {0, 1.5, 0}); }), HasSubstr("should be in [0, 1]"));
}

TEST(TokenFile, ACutFileIsRefused) {
  const TempFolder folder;
  write_file(folder / "x.i32", "12345");
  EXPECT_THAT(error_of([&] { TokenFile file(folder / "x.i32"); }),
              HasSubstr("has 5 bytes, which is no multiple of the 4 bytes of a token"));
}

TEST(TokenFile, AnUnknownSuffixNeedsATypeByHand) {
  const TempFolder folder;
  write_file(folder / "x.bin", std::string("\x05\x00", 2));
  EXPECT_THAT(error_of([&] { TokenFile file(folder / "x.bin"); }), HasSubstr(".u16"));
  EXPECT_EQ(TokenFile(folder / "x.bin", TokenType::u16).token(0), 5);
}

TEST(TokenFile, ATokenThatDoesNotFitIsRefused) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { write_tokens(folder / "x.u16", {65536}); }),
              HasSubstr("token 65536 does not fit in 16 bits; name the file .i32"));
  EXPECT_FALSE(std::filesystem::exists(folder / "x.u16"));
}

}  // namespace
}  // namespace phx
