#include "phalanx/convert/tensor_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "convert/hf_fixtures.h"
#include "phalanx/convert/hf_model.h"

namespace phx {
namespace {

// Llama of 4 heads in 2 groups of size 4: rows of q, k and v by hand.
TEST(TensorMap, QkvRowsGoGroupByGroup) {
  const HfModel hf(hf_fixture("llama2"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto pair = std::ranges::find(pairs, "decoder.layers.1.self_attention.linear_qkv.weight",
                                      &TensorPair::ours);
  ASSERT_NE(pair, pairs.end());
  ASSERT_EQ(pair->hf.size(), 3u);
  EXPECT_EQ(pair->hf[1].name, "model.layers.1.self_attn.k_proj.weight");
  EXPECT_EQ(pair->hf[1].shape, (std::vector<int64_t>{8, 16}));
  std::vector<std::array<int64_t, 4>> blocks;
  for (const RowBlock& block : pair->blocks)
    blocks.push_back({int64_t(block.hf), block.our_row, block.hf_row, block.count});
  EXPECT_EQ(
      blocks,
      (std::vector<std::array<int64_t, 4>>{
          {0, 0, 0, 8}, {1, 8, 0, 4}, {2, 12, 0, 4}, {0, 16, 8, 8}, {1, 24, 4, 4}, {2, 28, 4, 4}}));
}

// Four experts of width 24: each one's gate, then its up projection, then the next expert's.
TEST(TensorMap, ExpertsStandOneAfterTheOther) {
  const HfModel hf(hf_fixture("mixtral"));
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, hf.config.model);
  const auto fc1 =
      std::ranges::find(pairs, "decoder.layers.1.mlp.experts.linear_fc1.weight", &TensorPair::ours);
  const auto fc2 =
      std::ranges::find(pairs, "decoder.layers.1.mlp.experts.linear_fc2.weight", &TensorPair::ours);
  ASSERT_NE(fc1, pairs.end());
  ASSERT_NE(fc2, pairs.end());
  ASSERT_EQ(fc1->hf.size(), 8u);
  ASSERT_EQ(fc2->hf.size(), 4u);
  EXPECT_EQ(fc1->our_shape, (std::vector<int64_t>{192, 16}));
  EXPECT_EQ(fc1->hf[5].name, "model.layers.1.block_sparse_moe.experts.2.w3.weight");
  EXPECT_EQ(fc1->hf[5].shape, (std::vector<int64_t>{24, 16}));
  EXPECT_EQ(fc1->blocks.at(5).our_row, 120);
  EXPECT_EQ(fc2->hf[3].name, "model.layers.1.block_sparse_moe.experts.3.w2.weight");
  EXPECT_EQ(fc2->hf[3].shape, (std::vector<int64_t>{16, 24}));
  EXPECT_EQ(fc2->blocks.at(3).our_row, 48);
}

// GPT-2 keeps q, k and v of all heads in one matrix, stored [in, out].
TEST(TensorMap, OneMatrixOfQkvIsTransposedAndCutByGroups) {
  const HfModel hf(hf_fixture("gpt2"));
  const TransformerConfig& config = hf.config.model;
  const std::vector<TensorPair> pairs = tensor_pairs(*hf.config.family, config);
  const auto pair = std::ranges::find(pairs, "decoder.layers.0.self_attention.linear_qkv.weight",
                                      &TensorPair::ours);
  ASSERT_NE(pair, pairs.end());
  EXPECT_TRUE(pair->transposed);
  const int64_t h = config.hidden_size, d = config.head_dim();
  ASSERT_EQ(pair->hf.size(), 1u);
  EXPECT_EQ(pair->hf[0].shape, (std::vector<int64_t>{h, 3 * h}));
  ASSERT_GE(pair->blocks.size(), 6u);
  EXPECT_EQ(pair->blocks[1].our_row, d);     // the first head's key follows its query
  EXPECT_EQ(pair->blocks[1].hf_row, h);      // there it follows all queries
  EXPECT_EQ(pair->blocks[2].hf_row, 2 * h);  // and the value all keys
  EXPECT_EQ(pair->blocks[4].hf_row, h + d);  // the second head's key
}

TEST(TensorMap, EveryRowOfOursIsThereOnceInOrder) {
  for (const char* name : kHfFixtures) {
    const HfModel hf(hf_fixture(name));
    for (const TensorPair& pair : tensor_pairs(*hf.config.family, hf.config.model)) {
      int64_t row = 0;
      for (const RowBlock& block : pair.blocks) {
        EXPECT_EQ(block.our_row, row) << name << " " << pair.ours;
        row += block.count;
      }
      EXPECT_EQ(row, pair.our_shape[0]) << name << " " << pair.ours;
    }
  }
}

TEST(TensorMap, ATensorWithoutAPlaceInTheFamilyIsNamed) {
  TransformerConfig config = imported(fixture_config("qwen3"));  // norms of q and k
  EXPECT_EQ(error_of([&] { tensor_pairs(*find_family("gpt2"), config); }),
            "a gpt2 model of Hugging Face has no place for "
            "decoder.layers.0.self_attention.q_layernorm.weight");
}

}  // namespace
}  // namespace phx
