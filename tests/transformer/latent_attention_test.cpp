#include "phalanx/transformer/latent_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "phalanx/base/options.h"
#include "phalanx/nn/parameter_store.h"
#include "phalanx/transformer/transformer_fields.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 10;
  config.num_attention_heads = 2;
  config.seq_length = config.max_position_embeddings = 6;
  config.vocab_size = 8;
  config.position_embedding_type = PositionEmbedding::rope;
  config.normalization = Normalization::RMSNorm;
  config.add_bias_linear = false;
  config.qk_layernorm = true;
  config.attention_dropout = config.hidden_dropout = 0;
  config.init_method_std = 0.5;
  config.latent = {.multi_latent_attention = true,
                   .q_lora_rank = 7,
                   .kv_lora_rank = 5,
                   .qk_head_dim = 3,
                   .qk_pos_emb_head_dim = 4,
                   .v_head_dim = 6,
                   .rope_type = {}};
  return config;
}

// One layer's branch on top of the residual stream.
struct Layer {
  explicit Layer(const TransformerConfig& model)
      : config(model),
        part(LayerContext{.config = config, .ranks = {}, .layer = 0}),
        store(part, test_device(), {.dtype = DType::f64}),
        rope(config, 0, 6, DType::f64, test_device()) {}
  Tensor forward(const Tensor& x, const RecomputePolicy& policy = {}, KvCache* cache = nullptr) {
    const ForwardContext context{.first_position = cache == nullptr ? 0 : cache->length,
                                 .cache = cache};
    return part.add_to(x, x, {rope, context, policy});
  }
  TransformerConfig config;
  LatentAttention part;
  ParameterStore store;
  RopeTables rope;
};

TEST(LatentAttention, GradientsMatchFiniteDifferences) {
  for (const bool lora : {true, false}) {
    TransformerConfig config = tiny();
    if (!lora) config.latent.q_lora_rank.reset();
    Layer layer(config);
    expect_gradients_match([&](std::span<const Tensor> in) { return layer.forward(in[0]); },
                           {randn({6, 2, 10}, Seed{1})});
  }
}

TEST(LatentAttention, RecomputedItGivesTheSameBytes) {
  Layer layer(tiny());
  const std::vector<Tensor> x = {randn({6, 2, 10}, Seed{1})};
  const auto with = [&](const RecomputePolicy& policy) {
    return gradients_of([&](std::span<const Tensor> in) { return layer.forward(in[0], policy); },
                        x);
  };
  const Gradients plain = with({});
  for (const RecomputePolicy& policy :
       {RecomputePolicy{.core_attention = true}, RecomputePolicy{.up_projections = true},
        RecomputePolicy{.norms = true}, RecomputePolicy{.up_projections = true, .norms = true}}) {
    const Gradients again = with(policy);
    expect_close(again.output, plain.output, 0);
    expect_close(again.inputs[0], plain.inputs[0], 0);
  }
}

TEST(LatentAttention, TokenByTokenWithACacheIsTheWholeSequence) {
  Layer layer(tiny());
  GradMode off(test_runtime(), false);
  const Tensor x = randn({6, 1, 10}, Seed{1});
  const Tensor whole = layer.forward(x);
  KvCache cache;
  cache.layers.push_back({empty({6, 1, 2 * 7}, DType::f64, test_device()),
                          empty({6, 1, 2 * 6}, DType::f64, test_device())});
  for (int64_t i = 0; i < 6; ++i) {
    expect_close(layer.forward(x.rows(i, 1), {}, &cache), whole.rows(i, 1), 1e-13);
    ++cache.length;
  }
}

TEST(LatentAttention, HasMegatronsNames) {
  const auto names = [](const TransformerConfig& config) {
    Layer layer(config);
    std::vector<std::string> list;
    for (const Parameter* parameter : layer.store.parameters()) list.push_back(parameter->name());
    std::ranges::sort(list);
    return list;
  };
  EXPECT_EQ(names(tiny()), (std::vector<std::string>{
                               "input_layernorm.weight",
                               "self_attention.linear_kv_down_proj.weight",
                               "self_attention.linear_kv_up_proj.layer_norm_weight",
                               "self_attention.linear_kv_up_proj.weight",
                               "self_attention.linear_proj.weight",
                               "self_attention.linear_q_down_proj.weight",
                               "self_attention.linear_q_up_proj.layer_norm_weight",
                               "self_attention.linear_q_up_proj.weight",
                           }));
  TransformerConfig lite = tiny();
  lite.latent.q_lora_rank.reset();
  lite.qk_layernorm = false;
  EXPECT_EQ(names(lite), (std::vector<std::string>{
                             "input_layernorm.weight",
                             "self_attention.linear_kv_down_proj.weight",
                             "self_attention.linear_kv_up_proj.weight",
                             "self_attention.linear_proj.weight",
                             "self_attention.linear_q_proj.weight",
                         }));
}

// m = 0.1 * 0.7 * ln 4 + 1 at a head of 3 + 4 channels.
TEST(LatentAttention, YarnSharpensScoresByTheSquareOfItsMagnitude) {
  TransformerConfig config = tiny();
  config.rotary_scaling_factor = 4;
  config.mscale_all_dim = 0.7;
  const double m = 0.07 * std::log(4.0) + 1;
  EXPECT_NEAR(config.softmax_scale(), m * m / std::sqrt(7.0), 1e-15);
  config.latent.rope_type = RopeType::rope;
  EXPECT_NEAR(config.softmax_scale(), 1 / std::sqrt(7.0), 1e-15);
}

Problems problems_of(const std::vector<std::string>& extra) {
  std::vector<std::string> args = {"--num-layers",
                                   "4",
                                   "--hidden-size",
                                   "65",  // no multiple of the heads: sizes of heads are given
                                   "--num-attention-heads",
                                   "4",
                                   "--seq-length",
                                   "32",
                                   "--max-position-embeddings",
                                   "32"};
  args.insert(args.end(), extra.begin(), extra.end());
  TransformerConfig config;
  OptionSet options;
  options.add("Model", config);
  ParseReport report = options.parse(args);
  options.check(transformer_rules(config), report);
  return report.problems;
}

std::string only_problem(std::vector<std::string> extra) {
  extra.insert(extra.end(), {"--multi-latent-attention", "--position-embedding-type", "rope"});
  const Problems problems = problems_of(extra);
  EXPECT_EQ(problems.size(), 1u) << format_problems(problems);
  return problems.empty() ? "" : problems[0].text + "\n" + problems[0].hint;
}

TEST(LatentAttention, WrongSettingsAreRefusedWithTheNearestThatWork) {
  EXPECT_TRUE(
      problems_of({"--multi-latent-attention", "--position-embedding-type", "rope"}).empty());
  EXPECT_EQ(only_problem({"--group-query-attention"}),
            "--group-query-attention and --multi-latent-attention exclude each other: every query "
            "head has a key head of its own\nleave --group-query-attention out");
  EXPECT_THAT(only_problem({"--qk-pos-emb-head-dim", "63"}),
              AllOf(HasSubstr("63 is odd"), HasSubstr("62"), HasSubstr("64")));
  EXPECT_THAT(only_problem({"--qk-head-dim", "200"}),
              AllOf(HasSubstr("= 264 channels a head"), HasSubstr("up to 192")));
  EXPECT_THAT(only_problem({"--v-head-dim", "200"}), HasSubstr("up to 192 are possible"));
  EXPECT_THAT(only_problem({"--rotary-scaling-factor", "40"}),
              HasSubstr("requires --yarn-original-max-position-embeddings"));
  EXPECT_THAT(only_problem({"--rotary-scaling-factor", "40", "--rope-type", "rope"}),
              HasSubstr("use --rope-type yarn"));
  const Problems positions = problems_of({"--multi-latent-attention"});
  ASSERT_EQ(positions.size(), 1u);
  EXPECT_EQ(positions[0].hint, "use --position-embedding-type rope");
  const Problems idle = problems_of({"--kv-channels", "16", "--kv-lora-rank", "64"});
  ASSERT_EQ(idle.size(), 1u) << format_problems(idle);
  EXPECT_EQ(idle[0].text, "--kv-lora-rank 64 has no effect without --multi-latent-attention");
}

}  // namespace
}  // namespace phx
