#include "phalanx/text/tokenizer/plain_tokenizers.h"

#include <gtest/gtest.h>

namespace phx {
namespace {

TEST(PlainTokenizers, BytesAreTheirOwnTokens) {
  const auto bytes = make_byte_tokenizer();
  EXPECT_EQ(bytes->encode("a\u00e4"), (std::vector<int32_t>{97, 195, 164}));
  EXPECT_EQ(bytes->decode(std::vector<int32_t>{97, 195, 164}), "a\u00e4");
}

TEST(PlainTokenizers, TheNullTokenizerCountsModuloItsVocabulary) {
  const auto null = make_null_tokenizer(50, std::nullopt, -1);
  EXPECT_EQ(null->encode("a"), (std::vector<int32_t>{97 % 50}));
  EXPECT_EQ(null->vocab_size(), 50);
  EXPECT_EQ(null->eod(), 49);
  EXPECT_EQ(make_null_tokenizer(50, 7, std::nullopt)->eod(), 7);
}

}  // namespace
}  // namespace phx
