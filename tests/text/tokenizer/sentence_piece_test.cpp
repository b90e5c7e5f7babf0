#include "phalanx/text/tokenizer/sentence_piece.h"

#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

const std::string kModel = std::string(PHX_TEST_DATA) + "/tokenizers/sentencepiece.model";

TEST(SentencePiece, TokensAndIdsAreFoundBothWays) {
  const auto tokenizer = load_sentence_piece(kModel);
  for (int32_t id = 0; id < 20; ++id) EXPECT_EQ(tokenizer->token_id(tokenizer->token_text(id)), id);
  EXPECT_FALSE(tokenizer->token_id("no such piece")) << "not the unknown token's id";
  EXPECT_EQ(tokenizer->token_id("<unk>"), 0);
  EXPECT_EQ(tokenizer->eod(), tokenizer->eos());
  EXPECT_EQ(tokenizer->token_text(*tokenizer->eos()), "</s>");
}

TEST(SentencePiece, IdsAreAppendedAndTextComesBack) {
  const auto tokenizer = load_sentence_piece(kModel);
  std::vector<int32_t> ids = {1};
  tokenizer->encode("the end", ids);
  ASSERT_GT(ids.size(), 1u);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(tokenizer->decode(std::span(ids).subspan(1)), "the end");
}

TEST(SentencePiece, WhatIsNoModelIsRefusedByItsName) {
  const TempFolder folder;
  write_file(folder / "a.model", "nonsense");
  const std::string path = folder / "a.model";
  EXPECT_TRUE(error_of([&] {
                load_sentence_piece(path);
              }).starts_with(path + " is no SentencePiece model: "));
  const auto tokenizer = load_sentence_piece(kModel);
  const std::string size = std::to_string(tokenizer->vocab_size() - 1);
  EXPECT_EQ(error_of([&] { tokenizer->decode(std::vector<int32_t>{-1}); }),
            "token -1 is not in 0.." + size + " of " + kModel);
}

}  // namespace
}  // namespace phx
