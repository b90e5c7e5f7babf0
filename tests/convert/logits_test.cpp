#include "phalanx/convert/logits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convert/hf_fixtures.h"
#include "phalanx/convert/hf_model.h"
#include "support/gradients.h"

namespace phx {
namespace {

using phx::testing::test_device;
using ::testing::HasSubstr;

TEST(Logits, ALongPromptTellsRightFromWrong) {
  const HfModel hf(hf_fixture("llama_long"));
  const SafetensorsFile file(hf_fixture("llama_long") / "logits.safetensors");
  const std::vector<float> floats = values<float>(file.at("logits"));
  const std::vector<double> theirs(floats.begin(), floats.end());
  const auto against_theirs = [&](const TransformerConfig& config) {
    return compare_logits(logits_of(config, *hf.tensors, values<int64_t>(file.at("tokens")),
                                    DType::f32, test_device()),
                          theirs, 24);
  };
  const LogitsTolerance tolerance = LogitsTolerance::of(512);
  const LogitsDifference right = against_theirs(hf.config.model);
  EXPECT_GT(right.largest, 1e-4);  // the difference that RoPE in fp32 makes
  EXPECT_TRUE(tolerance.allows(right)) << right.relative << " " << right.divergence;
  TransformerConfig base = hf.config.model, epsilon = hf.config.model;
  base.rotary_base = 10100;
  epsilon.norm_epsilon = 1e-6;
  EXPECT_FALSE(tolerance.allows(against_theirs(base)));
  EXPECT_FALSE(tolerance.allows(against_theirs(epsilon)));
}

// Probabilities 1/2, 1/2 against 1/3, 2/3: (ln 3/2 + ln 3/4) / 2. A difference of 0.5 against 5.
TEST(Logits, LogitsAreComparedByDivergenceAndRelativeError) {
  const double ln2 = std::log(2.0);
  const std::vector<double> a = {0, ln2}, b = {0, 0}, c = {3, 4.5}, d = {3, 4};
  EXPECT_NEAR(compare_logits(a, b, 2).divergence, 0.5 * std::log(1.125), 1e-15);
  EXPECT_NEAR(compare_logits(c, d, 2).relative, 0.1, 1e-15);
  EXPECT_EQ(compare_logits(c, d, 2).largest, 0.5);
  EXPECT_EQ(compare_logits(b, b, 2).divergence, 0);
  const std::vector<double> broken = {0, std::nan("")};
  EXPECT_FALSE(LogitsTolerance::of(1).allows(compare_logits(broken, b, 2)));
  EXPECT_FALSE(LogitsTolerance::of(1).allows(compare_logits(b, broken, 2)));
}

TEST(Logits, TheLargestDifferenceIsToldWithItsPlace) {
  const std::vector<double> a = {1, 2, 3, 4, 5, 6}, b = {1, 2, 3, 4, 5.5, 6};
  const LogitsDifference difference = compare_logits(a, b, 3);
  EXPECT_EQ(difference.largest, 0.5);
  EXPECT_EQ(difference.position, 1);
  EXPECT_EQ(difference.token, 1);
  EXPECT_EQ(error_of([&] { compare_logits(a, std::span(b).first(3), 3); }),
            "logits of 2 and 1 positions cannot be compared");
}

TEST(Logits, LongPromptsAreAllowedMore) {
  EXPECT_EQ(LogitsTolerance::of(1).relative, LogitsTolerance::of(128).relative);
  EXPECT_EQ(LogitsTolerance::of(128).relative, 10 * 128 * 0x1p-23);
  EXPECT_EQ(LogitsTolerance::of(1024).relative, 8 * LogitsTolerance::of(128).relative);
}

TEST(Logits, APromptIsMadeOfTokensOfTheModel) {
  const HfModel hf(hf_fixture("gpt2"));
  const auto error = [&](const std::vector<int64_t>& tokens) {
    return error_of(
        [&] { logits_of(hf.config.model, *hf.tensors, tokens, DType::f32, test_device()); });
  };
  const int64_t vocabulary = *hf.config.model.vocab_size;
  EXPECT_EQ(error({}), "a prompt has at least one token");
  EXPECT_THAT(error({0, vocabulary}), HasSubstr("is outside of the vocabulary of "));
  EXPECT_THAT(error({-1}), HasSubstr("token -1 of the prompt"));
  const std::vector<int64_t> many(size_t(hf.config.model.max_position_embeddings) + 1, 0);
  EXPECT_THAT(error(many), HasSubstr("positions"));
}

}  // namespace
}  // namespace phx
