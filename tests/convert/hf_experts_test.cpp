#include "phalanx/convert/hf_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Our options for layers 0 to 5 and the keys in `config`.
Json taken(const char* family, const Json& config, std::vector<std::string>* problems = nullptr) {
  Json ours = {{"num_layers", 6}, {"num_experts", 4}};
  std::vector<std::string> found;
  take_experts(*find_family(family), config, ours, found);
  if (problems != nullptr)
    *problems = found;
  else
    EXPECT_TRUE(found.empty()) << found[0];
  return ours;
}

TEST(HfExperts, LayersAtMultiplesOfTheStepHaveThemButForTheDenseOnes) {
  EXPECT_FALSE(taken("qwen3_moe", Json::object()).contains("moe_layer_freq"));  // all layers
  EXPECT_EQ(taken("qwen3_moe", {{"decoder_sparse_step", 2}})["moe_layer_freq"],
            FrequencyPattern::of({0, 1, 0, 1, 0, 1}).text());
  EXPECT_EQ(taken("qwen3_moe", {{"mlp_only_layers", {0, 5, 17, -1}}})["moe_layer_freq"],
            FrequencyPattern::of({0, 1, 1, 1, 1, 0}).text());
  EXPECT_FALSE(taken("mixtral", {{"decoder_sparse_step", 2}}).contains("moe_layer_freq"));
}

TEST(HfExperts, AStepBelowOneIsToldWithTheRule) {
  std::vector<std::string> problems;
  taken("qwen2_moe", {{"decoder_sparse_step", 0}}, &problems);
  EXPECT_THAT(problems, ElementsAre("\"decoder_sparse_step\" is 0, but it should be 1 or more"));
}

TEST(HfExperts, TheWeightOfBalancingHasTheLibrarysDefault) {
  EXPECT_EQ(taken("mixtral", Json::object())["moe_aux_loss_coeff"], Json::array({0.001}));
  EXPECT_EQ(taken("mixtral", {{"router_aux_loss_coef", 0.5}})["moe_aux_loss_coeff"],
            Json::array({0.5}));
}

TEST(HfExperts, AFamilyOfExpertsWithoutANumberOfThemIsAProblem) {
  Json ours = {{"num_layers", 6}, {"num_experts", nullptr}};
  std::vector<std::string> problems;
  take_experts(*find_family("mixtral"), Json::object(), ours, problems);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0], HasSubstr("the number of experts is null"));
}

TEST(HfExperts, DenseFamiliesHaveNoSuchKeys) {
  EXPECT_TRUE(expert_keys(*find_family("llama")).empty());
  EXPECT_EQ(expert_keys(*find_family("mixtral")).size(), 2u);
  EXPECT_EQ(expert_keys(*find_family("qwen3_moe")).size(), 4u);
  Json ours = {{"num_layers", 6}};
  std::vector<std::string> problems;
  take_experts(*find_family("llama"), {{"router_aux_loss_coef", 0.5}}, ours, problems);
  EXPECT_EQ(ours, (Json{{"num_layers", 6}}));
}

TEST(HfExperts, DenseLayersAreWrittenByNumber) {
  TransformerConfig model = imported(fixture_config("qwen3_moe"));
  model.num_layers = 4;
  model.moe.moe_layer_freq = FrequencyPattern::of({0, 1, 1, 0});
  model.moe.moe_aux_loss_coeff = {0.25};
  Json config;
  give_experts(*find_family("qwen3_moe"), model, config);
  EXPECT_EQ(config, (Json{{"decoder_sparse_step", 1},
                          {"mlp_only_layers", {0, 3}},
                          {"router_aux_loss_coef", 0.25}}));
}

}  // namespace
}  // namespace phx
