#include "phalanx/data/gpt/gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/gpt/five_documents.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GptDataset, ASampleIsWhatTheIndexSays) {
  FiveDocuments data;
  const Sample first = data.sample(0), second = data.sample(1);
  // Document 2 from token 5 on, then document 4; document 1 from token 1 on, then document 3.
  EXPECT_THAT(first.tokens, ElementsAre(25, 99, 40, 41));
  EXPECT_THAT(first.labels, ElementsAre(99, 40, 41, 42));
  EXPECT_THAT(second.tokens, ElementsAre(11, 99, 30, 31));
  EXPECT_THAT(second.labels, ElementsAre(99, 30, 31, 32));
  EXPECT_TRUE(first.loss_mask.empty() && first.positions.empty() && first.cu_seqlens.empty());
}

TEST(GptDataset, EndsOfDocumentsCutPositionsAttentionAndLoss) {
  FiveDocuments data;
  data.request.sample.mask_eod_loss = true;
  EXPECT_THAT(data.sample(0).loss_mask, ElementsAre(1, 0, 1, 1));
  data.request.sample.reset_positions = true;
  EXPECT_THAT(data.sample(0).positions, ElementsAre(0, 1, 0, 1));
  EXPECT_TRUE(data.sample(0).cu_seqlens.empty());
  data.request.sample.reset_attention = true;
  EXPECT_THAT(data.sample(0).cu_seqlens, ElementsAre(0, 2, 4));
  data.request.sample.reset_positions = false;
  EXPECT_THAT(data.sample(0).positions, ElementsAre(0, 1, 2, 3));
}

TEST(GptDataset, DocumentsAreKeptApartWithoutATokenThatSaysSo) {
  FiveDocuments data;
  data.request.sample = {.seq_length = 4, .inter_document = true};
  const Sample sample = data.sample(0);
  EXPECT_THAT(sample.cu_seqlens, ElementsAre(0, 2, 4));
  EXPECT_THAT(sample.positions, ElementsAre(0, 1, 0, 1));
  // A piece of one token at the end that is a label only is no sequence.
  bool seen = false;
  for (int64_t i = 0; i < 12; ++i) {
    const Sample other = data.sample(i);
    EXPECT_EQ(other.cu_seqlens.back(), 4);
    if (other.labels[3] % 10 == 0 && other.labels[3] != kEod) {
      EXPECT_THAT(other.cu_seqlens[other.cu_seqlens.size() - 2], ::testing::Ne(4));
      seen = true;
    }
  }
  EXPECT_TRUE(seen);
}

TEST(GptDataset, PaddingIsNotLearned) {
  FiveDocuments data;
  data.request.sample.pad = 40;
  const Sample sample = data.sample(0);  // 25 99 40 41 42
  EXPECT_THAT(sample.loss_mask, ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(sample.tokens, ElementsAre(25, 99, 0, 41));
  EXPECT_THAT(sample.labels, ElementsAre(99, 0, 41, 42));
}

TEST(GptDataset, ASampleThatIsNotThereIsAnError) {
  FiveDocuments data;
  EXPECT_THAT(error_of([&] { data.sample(12); }), HasSubstr("does not exist"));
  data.request.sample.eod = {};
  data.request.sample.reset_positions = true;
  EXPECT_THAT(error_of([&] { data.sample(0); }), HasSubstr("the tokenizer has none"));
}

}  // namespace
}  // namespace phx
