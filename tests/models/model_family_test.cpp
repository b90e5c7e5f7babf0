#include "phalanx/models/model_family.h"

#include <gtest/gtest.h>

#include <set>

#include "phalanx/transformer/mlp.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing;

TransformerConfig tiny() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.ffn_hidden_size = 12;
  config.seq_length = config.max_position_embeddings = 6;
  config.vocab_size = 8;
  return config;
}

std::set<std::string> names_of(Model& model) {
  std::set<std::string> names;
  model.for_each_parameter([&](const std::string& name, Parameter&) { names.insert(name); });
  return names;
}

bool has_attention(const std::set<std::string>& names) {
  for (const std::string& name : names)
    if (name.find("self_attention") != std::string::npos) return true;
  return false;
}

TEST(ModelFamily, ADecoderIsMadeOfThePartsThatItIsGiven) {
  const ModelFamily plain = decoder_of("no-attention", "layers without it", [](const auto& layer) {
    std::vector<NamedPart> parts;
    parts.push_back({"mlp", std::make_unique<Mlp>(layer)});
    return parts;
  });
  const TransformerConfig config = tiny();
  EXPECT_EQ(plain.name, "no-attention");
  EXPECT_FALSE(has_attention(names_of(*plain(config))));
  EXPECT_TRUE(has_attention(names_of(*default_model()(config))));
  EXPECT_TRUE(names_of(*plain(config)).contains("decoder.layers.1.mlp.linear_fc2.weight"));
}

struct Depth {
  int64_t mlps = 1;
  template <class Field>
  void each(Field&& field) {
    field("mlps", mlps, "how many a layer has");
  }
};

TEST(ModelFamily, OptionsOfItsOwnReachItsLayers) {
  ModelFamily family = decoder_of(
      "deep", "several MLPs a layer",
      [](const LayerContext& layer, const OwnOptions& options) {
        std::vector<NamedPart> parts;
        for (int64_t i = 0; i < options.get<Depth>().mlps; ++i)
          parts.push_back({"mlp" + std::to_string(i), std::make_unique<Mlp>(layer)});
        return parts;
      },
      OwnOptions::of<Depth>({.mlps = 3}));
  const TransformerConfig config = tiny();
  EXPECT_TRUE(names_of(*family(config)).contains("decoder.layers.0.mlp2.linear_fc1.weight"));
  family.options = OwnOptions::of<Depth>({.mlps = 1});
  EXPECT_FALSE(names_of(*family(config)).contains("decoder.layers.0.mlp1.linear_fc1.weight"));
}

TEST(ModelFamily, TheDefaultIsOneOfTheStandardOnes) {
  ASSERT_EQ(standard_models().size(), 1u);
  EXPECT_EQ(standard_models()[0].name, default_model().name);
  EXPECT_EQ(ModelChoice().model, default_model().name);
}

}  // namespace
}  // namespace phx
