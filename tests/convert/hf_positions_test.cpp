#include "phalanx/convert/hf_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_fixtures.h"

namespace phx {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;
using ::testing::HasSubstr;

TEST(HfPositions, AMixtralWithoutTheKeyHasNoWindow) {
  Json config = fixture_config("mixtral");
  config.erase("sliding_window");
  EXPECT_EQ(imported(config).layer_window(0), std::nullopt);
}

TEST(HfPositions, YarnsRampMayEndBetweenPairs) {
  Json config = fixture_config("qwen2_yarn");
  EXPECT_TRUE(imported(config).yarn_correction_range_round_to_int);
  config["rope_parameters"]["truncate"] = false;
  const HfConfig before = config_from_hf(config, "qwen2_yarn");
  EXPECT_FALSE(before.model.yarn_correction_range_round_to_int);
  const Json exported = config_to_hf(*before.family, before.model, "float32", Json());
  EXPECT_FALSE(imported(exported).yarn_correction_range_round_to_int);
}

struct Taken {
  Json ours;
  Texts problems;
};

Taken taken(const char* family, const Json& config, int64_t layers = 6) {
  Taken result{{{"num_layers", layers}, {"max_position_embeddings", 64}}, {}};
  take_positions(*find_family(family), config, result.ours, result.problems);
  return result;
}

TEST(HfPositions, OlderAndNewerKeysSayTheSame) {
  const Json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 32}};
  Json newer = scaling;
  newer["rope_theta"] = 500000.0;
  const Taken a = taken("llama", {{"rope_theta", 500000.0}, {"rope_scaling", scaling}});
  const Taken b = taken("llama", {{"rope_parameters", newer}});
  EXPECT_EQ(a.ours, b.ours);
  EXPECT_EQ(a.ours["rotary_base"], 500000.0);
  EXPECT_EQ(a.ours["use_rope_scaling"], true);
  EXPECT_EQ(a.ours["rope_scaling_original_max_position_embeddings"], 32);
}

TEST(HfPositions, WhatIsNotComputedIsAProblem) {
  EXPECT_EQ(
      taken("llama", {{"rope_scaling", {{"type", "longrope"}}}}).problems,
      (Texts{"rope scaling of type \"longrope\" is not computed here; default, linear, llama3 "
             "and yarn are"}));
  EXPECT_EQ(
      taken("llama", {{"partial_rotary_factor", 0.5}}).problems,
      (Texts{"\"partial_rotary_factor\" is 0.5, but heads of this family are rotated whole"}));
  const Json two = {{"full_attention", {{"rope_theta", 1.0}}},
                    {"sliding_attention", {{"rope_theta", 2.0}}}};
  EXPECT_EQ(taken("llama", {{"rope_parameters", two}}).problems,
            (Texts{"\"rope_parameters\" differ between kinds of layers"}));
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 2.0}};
  ASSERT_EQ(taken("qwen2", {{"rope_scaling", yarn}}).problems.size(), 1u);
}

// yarn's factor follows from the two lengths where it is not given: 64 / 16.
TEST(HfPositions, YarnsFactorFollowsFromTheLengths) {
  const Json yarn = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 16}};
  const Taken result = taken("qwen2", {{"rope_scaling", yarn}});
  EXPECT_EQ(result.ours["rotary_scaling_factor"], 4.0);
  EXPECT_EQ(result.ours["yarn_original_max_position_embeddings"], 16);
  EXPECT_EQ(result.ours["position_embedding_type"], "yarn");
}

TEST(HfPositions, AWindowOfNTokensReachesNMinusOneBack) {
  EXPECT_EQ(taken("mistral", {{"sliding_window", 8}}).ours["window_size"],
            (WindowSize{7, 0}.text()));
  EXPECT_FALSE(taken("mistral", {{"sliding_window", nullptr}}).ours.contains("window_size"));
  EXPECT_EQ(taken("mistral", Json::object()).ours["window_size"], (WindowSize{4095, 0}.text()));
  EXPECT_EQ(taken("mistral", {{"sliding_window", 0}}).problems, (Texts{"\"sliding_window\" is 0"}));
}

TEST(HfPositions, EachFamilyHasItsOwnLayersWithAWindow) {
  const auto pattern = [](const Taken& result) {
    return result.ours.value("window_attn_skip_freq", std::string("all"));
  };
  // Gemma 2: every second layer sees all; Qwen: the layers from one on.
  EXPECT_EQ(pattern(taken("gemma2", {{"sliding_window", 8}})),
            FrequencyPattern::of({1, 0, 1, 0, 1, 0}).text());
  EXPECT_EQ(pattern(taken("gemma2", {{"sliding_window", 8}, {"sliding_window_pattern", 3}})),
            FrequencyPattern::of({1, 1, 0, 1, 1, 0}).text());
  EXPECT_EQ(pattern(taken(
                "qwen2",
                {{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 4}})),
            FrequencyPattern::of({0, 0, 0, 0, 1, 1}).text());
  EXPECT_FALSE(taken("qwen2", {{"sliding_window", 8}}).ours.contains("window_size"));
  const Taken named =
      taken("gemma2",
            {{"sliding_window", 8}, {"layer_types", {"full_attention", "chunked_attention"}}}, 2);
  EXPECT_EQ(named.problems.size(), 1u);
  EXPECT_THAT(named.problems[0], HasSubstr("\"layer_types\" holds \"chunked_attention\""));
}

TEST(HfPositions, WindowedLayersOfGemma3HaveABaseOfTheirOwn) {
  const Taken result =
      taken("gemma3_text", {{"sliding_window", 8}, {"rope_local_base_freq", 77.0}});
  EXPECT_EQ(result.ours["rotary_base"], 1000000.0);
  EXPECT_EQ(result.ours["rotary_base_local"], 77.0);
  EXPECT_FALSE(
      taken("gemma3_text", {{"sliding_window", nullptr}}).ours.contains("rotary_base_local"));
}

TEST(HfPositions, WhatIsWrittenIsReadAsTheSame) {
  for (const char* name : {"llama3", "qwen2_yarn", "mistral", "gemma2", "gemma3"}) {
    SCOPED_TRACE(name);
    const HfConfig hf = config_from_hf(fixture_config(name), name);
    Json written = Json::object();
    give_positions(*hf.family, hf.model, written);
    EXPECT_FALSE(written.contains("rope_parameters")) << "older versions do not read it";
    Json ours = {{"num_layers", hf.model.num_layers},
                 {"max_position_embeddings", hf.model.max_position_embeddings}};
    Texts problems;
    take_positions(*hf.family, written, ours, problems);
    EXPECT_EQ(problems, Texts());
    EXPECT_EQ(ours["rotary_base"], hf.model.rotary_base);
    EXPECT_EQ(ours.contains("window_size"), hf.model.window_size.has_value());
    EXPECT_EQ(ours.value("position_embedding_type", "rope") == "yarn",
              hf.model.position_embedding_type == PositionEmbedding::yarn);
  }
}

}  // namespace
}  // namespace phx
