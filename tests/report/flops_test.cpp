#include "phalanx/report/flops.h"

#include <gtest/gtest.h>

#include "phalanx/base/error.h"

namespace phx {
namespace {

const FlopsShape kLlama3_8B = {.num_layers = 32,
                               .hidden = 4096,
                               .ffn_hidden = 14336,
                               .num_heads = 32,
                               .num_groups = 8,
                               .head_size = 128,
                               .padded_vocab = 128256,
                               .swiglu = true};

TEST(Flops, Llama3) {
  const double flops = training_flops_of_batch(kLlama3_8B, 1, 8192);
  EXPECT_EQ(flops, 421645529382912.);
  EXPECT_NEAR(flops / 8192 / 1e9, 51.470, 0.0005);
}

TEST(Flops, Gpt3) {
  const FlopsShape shape = {.num_layers = 96,
                            .hidden = 12288,
                            .ffn_hidden = 49152,
                            .num_heads = 96,
                            .num_groups = 96,
                            .head_size = 128,
                            .padded_vocab = 51200};
  EXPECT_EQ(training_flops_of_batch(shape, 1536, 2048), 3.340597800160198656e18);
}

TEST(Flops, Mixtral) {
  const FlopsShape shape = {.num_layers = 32,
                            .hidden = 4096,
                            .num_heads = 32,
                            .num_groups = 8,
                            .head_size = 128,
                            .padded_vocab = 32000,
                            .swiglu = true,
                            .num_moe_layers = 32,
                            .expert_ffn_hidden = 14336,
                            .experts_per_token = 2};
  EXPECT_EQ(training_flops_of_batch(shape, 1, 4096), 326477644038144.);
}

TEST(Flops, ASharedExpertOfTheDenseWidthIsADenseLayer) {
  FlopsShape moe = kLlama3_8B;
  moe.num_moe_layers = 32;
  moe.shared_expert_ffn_hidden = moe.ffn_hidden;
  EXPECT_EQ(training_flops_of_batch(moe, 1, 8192), training_flops_of_batch(kLlama3_8B, 1, 8192));
}

TEST(Flops, OutputGateAndMultiTokenPredictionByHand) {
  // One layer and one more for prediction: h 2, f 3, q 4, kv 2, V 5, ungated. A token's products:
  // MLP 2 * 2*3*2 = 24; attention 2 * (2*(4+4+2*2) + 4*2) = 64; join 3*2 + 2*4 = 14; head 2*5*2
  // = 20.
  const FlopsShape shape = {.num_layers = 1,
                            .hidden = 2,
                            .ffn_hidden = 3,
                            .num_heads = 2,
                            .num_groups = 1,
                            .head_size = 2,
                            .padded_vocab = 5,
                            .attention_output_gate = true,
                            .num_mtp_layers = 1};
  EXPECT_EQ(training_flops(shape, 10, 0), 6. * 10. * (24 + 64 + 14 + 20));
  EXPECT_EQ(training_flops(shape, 0, 7), 6. * 4. * 2. * 7.);
}

TEST(Flops, LatentAttentionByHand) {
  // h 2, f 3, 2 heads of 3 + 1 and 2 channels, latent widths 5 and 4, V 5, ungated. Queries:
  // 5*(2 + 8 + 1) = 55; keys and values: 4*(2 + 6 + 4 + 1) + 2*1 = 54; output: 4*2 = 8. MLP 12,
  // head
  // 10. Pairs: (8 + 4) / 2 = 6.
  FlopsShape shape = {
      .num_layers = 1,
      .hidden = 2,
      .ffn_hidden = 3,
      .num_heads = 2,
      .padded_vocab = 5,
      .latent = LatentFlops{.q_rank = 5, .kv_rank = 4, .plain = 3, .turned = 1, .value = 2}};
  EXPECT_EQ(training_flops(shape, 10, 0), 6. * 10. * (55 + 54 + 8 + 12 + 10));
  EXPECT_EQ(training_flops(shape, 0, 7), 6. * 6. * 7.);
  shape.latent->q_rank = 0;  // queries from the hidden state: 2*8 = 16
  EXPECT_EQ(training_flops(shape, 10, 0), 6. * 10. * (16 + 54 + 8 + 12 + 10));
}

TEST(Flops, PackedSequencesCostLessThanOneLongOne) {
  const double packed = training_flops(kLlama3_8B, 8192, 2 * 4096 * 4096);
  EXPECT_EQ(packed, training_flops_of_batch(kLlama3_8B, 2, 4096));
  EXPECT_LT(packed, training_flops_of_batch(kLlama3_8B, 1, 8192));
}

TEST(Flops, ThroughputIsPerDevice) { EXPECT_DOUBLE_EQ(tflops_per_gpu(8e15, 2., 8), 500.); }

TEST(Flops, MoreMoeLayersThanLayersIsAnError) {
  FlopsShape shape = kLlama3_8B;
  shape.num_moe_layers = 33;
  EXPECT_THROW(training_flops(shape, 1, 1), Error);
}

}  // namespace
}  // namespace phx
