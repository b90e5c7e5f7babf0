#include "phalanx/transformer/normed_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "phalanx/comm/meta_world.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/ops/linear.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TransformerConfig with_norm(Normalization kind) {
  TransformerConfig config;
  config.hidden_size = 8;
  config.normalization = kind;
  config.norm_epsilon = 1e-3;
  config.apply_layernorm_1p = true;
  return config;
}

TEST(NormedLinear, TheNormsWeightsHaveMegatronsNames) {
  for (const Normalization kind : {Normalization::RMSNorm, Normalization::LayerNorm}) {
    NormedLinear linear(norm_spec(with_norm(kind), 8, {}), 8, cut_rows({6}, {}), {}, {});
    std::set<std::string> names;
    linear.for_each_parameter([&](const std::string& name, Parameter&) { names.insert(name); });
    std::set<std::string> expected = {"weight", "bias", "layer_norm_weight"};
    if (kind == Normalization::LayerNorm) expected.insert("layer_norm_bias");
    EXPECT_EQ(names, expected);
  }
}

TEST(NormedLinear, ASpecIsWhatTheConfigSays) {
  const NormSpec spec = norm_spec(with_norm(Normalization::LayerNorm), 5, {});
  EXPECT_EQ(spec.kind, Normalization::LayerNorm);
  EXPECT_EQ(spec.width, 5);
  EXPECT_EQ(spec.eps, 1e-3);
  EXPECT_TRUE(spec.zero_centred);
  TransformerConfig config = with_norm(Normalization::RMSNorm);
  EXPECT_FALSE(post_norm_spec(config, {}));
  config.post_layernorms = true;
  EXPECT_EQ(post_norm_spec(config, {})->width, 8);
}

// RMS norm of a row and the product, by hand.
TEST(NormedLinear, TheProductIsOfWhatWasNormalised) {
  NormedLinear linear(norm_spec(with_norm(Normalization::RMSNorm), 8, {}), 8, cut_rows({6}, {}),
                      {.bias = false, .init = Init::normal(1)}, {});
  ParameterStore store(linear, test_device(), {.dtype = DType::f64, .gradients = false});
  GradMode off(test_runtime(), false);
  const Tensor x = randn({1, 1, 8}, Seed{1});                                 // [s, b, in]
  const auto in = to_values(x), w = to_values(store.find("weight").value()),  // [6, 8]
      scale = to_values(store.find("layer_norm_weight").value());
  double squares = 0;
  for (const double v : in) squares += v * v;
  for (const bool remake : {false, true}) {
    const auto got = to_values(linear.forward(x, remake));
    for (size_t o = 0; o < 6; ++o) {
      double sum = 0;
      for (size_t i = 0; i < 8; ++i)
        sum += w[8 * o + i] * in[i] * (1 + scale[i]) / std::sqrt(squares / 8 + 1e-3);
      EXPECT_NEAR(got[o], sum, 1e-12);
    }
  }
}

TEST(BranchLinear, EveryWayToTheResidualGivesTheSameSum) {
  const std::string site = "here";
  const Tensor residual = randn({2, 1, 6}, Seed{1}), x = randn({2, 1, 8}, Seed{2});  // [s, b, ..]
  GradMode off(test_runtime(), false);
  for (const bool bias : {false, true}) {
    BranchLinear linear(8, 6, {.bias = bias, .init = Init::normal(1)}, {}, std::nullopt);
    ParameterStore store(linear, test_device(), {.dtype = DType::f64, .gradients = false});
    if (bias) {
      Tensor value = store.find("bias").value();
      copy(randn({6}, Seed{3}), value);
    }
    const Tensor got = linear.add_to(residual, x, {0.0, site}, {});
    const Tensor product =
        phx::linear(x, store.find("weight").value(), bias ? store.find("bias").value() : Tensor());
    const auto a = to_values(got), b = to_values(residual), c = to_values(product);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i] + c[i], 1e-13);
  }
}

TEST(BranchLinear, ABranchIsNormalisedBeforeItJoins) {
  const std::string site = "here";
  TransformerConfig config = with_norm(Normalization::RMSNorm);
  config.post_layernorms = true;
  BranchLinear linear(8, 8, {.bias = false, .init = Init::normal(1)}, {},
                      post_norm_spec(config, {}));
  ParameterStore store(linear, test_device(), {.dtype = DType::f64, .gradients = false});
  GradMode off(test_runtime(), false);
  const Tensor residual = zeros({1, 1, 8}, DType::f64, test_device());
  const auto y = to_values(linear.add_to(residual, randn({1, 1, 8}, Seed{2}), {0.0, site}, {}));
  double squares = 0;
  for (const double v : y) squares += v * v;
  EXPECT_NEAR(squares / 8, 1, 1e-2) << "a root mean square of one, but for epsilon";
}

TEST(RandomSite, RowsOfARankHaveTheirPlaceInTheSequence) {
  MetaWorld world(1, 2);
  const auto group = world.group({0, 1}, "tp");
  const ForwardContext context{.seed = 5, .step = 7, .first_position = 100};
  const TensorParallel cut{.group = group.get(), .sequence = true}, whole{.group = group.get()};
  EXPECT_EQ(random_site("a", context, cut, 12).first_position, 112);
  EXPECT_EQ(random_site("a", context, whole, 12).first_position, 100);
  EXPECT_EQ(random_site("a", context, whole, 12).step, 7);
  EXPECT_EQ(random_site("a", context, whole, 12).seed, 5u);
  EXPECT_NE(random_site("a", context, whole, 12).site, random_site("b", context, whole, 12).site);
}

// Chunks of four rows: this context-parallel rank has rows 4 .. 7 and 8 .. 11 of 16.
TEST(NormedLinear, RandomSitesFollowTheTwoChunksOfARank) {
  ForwardContext context{.cut = {.ranks = 2, .rank = 1}};
  const auto whole = random_site("x", context, {}, 8);
  EXPECT_EQ(whole.first_position, 4);
  EXPECT_EQ(whole.split, 4);
  EXPECT_EQ(whole.position_after_split, 8);
  context.cut.rank = 0;
  EXPECT_EQ(random_site("x", context, {}, 8).position_after_split, 12);
  EXPECT_EQ(random_site("x", {}, {}, 8).position_after_split, 0) << "one span, never split";
}

TEST(NormedLinear, RandomSitesOfSequenceParallelRowsMayLieInBothChunks) {
  const auto site = [](int tp_rank, int tp_size, int64_t s) {
    MetaWorld world(tp_rank, tp_size);
    std::vector<int> all;
    for (int i = 0; i < tp_size; ++i) all.push_back(i);
    const auto group = world.group(all, "tp");
    return random_site("x", {.cut = {.ranks = 2, .rank = 1}},
                       {.group = group.get(), .sequence = true}, s / (2 * tp_size));
  };
  // 8 rows a context-parallel rank: 4 .. 7 and 8 .. 11 of 16; a tensor-parallel rank has four.
  EXPECT_EQ(site(0, 2, 16).first_position, 4);
  EXPECT_GT(site(0, 2, 16).split, 1000) << "one chunk";
  EXPECT_EQ(site(1, 2, 16).first_position, 8);
  // Rows 6 .. 11 and 12 .. 17 of 24; the second of three tensor-parallel ranks has 10, 11, 12, 13.
  EXPECT_EQ(site(1, 3, 24).first_position, 10);
  EXPECT_EQ(site(1, 3, 24).split, 2);
  EXPECT_EQ(site(1, 3, 24).position_after_split, 12);
}

}  // namespace
}  // namespace phx
