// Public Megatron recipes, flag by flag: none is unknown, these go through --check-args, and what
// is refused of the others is exactly this. A file's first line names the repository, the path and
// the commit that its flags are from; paths of data, tokenizers and checkpoints are placeholders.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "phalanx/cli/commands.h"
#include "phalanx/cli/exit_codes.h"
#include "phalanx/cli/not_in_this_build.h"
#include "phalanx/cli/pretrain_options.h"

namespace phx {
namespace {

using Words = std::vector<std::string>;
using Flags = std::set<std::string>;

const std::string kFolder = std::string(PHX_TEST_DATA) + "/recipes/";

const Flags kPassing = {
    "aws_gpt3",       "aws_llama2_70b", "europa_33b",  "gpt3_15b_release",    "gpt3_175b",
    "gpt3_345m_fp16", "gpt3_345m_tp4",  "gpt3_7b_pp4", "gpt3_rope_pp2",       "gpt3_swiglu_pp4",
    "gpt_345m",       "llama32_1b",     "qwen3_4b",    "gpt3_full_recompute", "swissai_llama3_8b"};
const Flags kRefused = {"deepseek_proxy", "llama3_8b_fp8", "mixtral_8x7b", "rocm_llama3_70b"};

Words recipe(const std::string& name) {
  std::ifstream in(kFolder + name + ".txt");
  EXPECT_TRUE(in.good()) << name;
  Words words;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream rest(line);
    for (std::string word; rest >> word;) words.push_back(word);
  }
  return words;
}

ParseResult parse(const std::string& name) { return parse_pretrain(recipe(name)); }

// The flags with a problem of this kind.
Flags problems(const ParseReport& report, ProblemKind kind) {
  Flags flags;
  for (const Problem& problem : report.problems)
    if (problem.kind == kind) flags.insert(problem.flag);
  return flags;
}

// The flags refused; anything else that is wrong fails the test.
Flags refused(const ParseReport& report) {
  const Flags flags = problems(report, ProblemKind::refused);
  for (const Problem& problem : report.problems)
    EXPECT_EQ(problem.kind, ProblemKind::refused) << problem.text;
  return flags;
}

TEST(Recipes, EachNamesItsPublicSourceAndIsInOneOfTheTwoLists) {
  const std::regex source("# [A-Za-z0-9.-]+/[A-Za-z0-9._-]+, [^ ]+, at [0-9a-f]{8}");
  Flags found;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().stem().string();
    found.insert(name);
    std::ifstream in(entry.path());
    std::string first;
    std::getline(in, first);
    EXPECT_TRUE(std::regex_match(first, source)) << name << ": " << first;
    EXPECT_NE(kPassing.contains(name), kRefused.contains(name)) << name;
  }
  EXPECT_EQ(found.size(), kPassing.size() + kRefused.size());
}

TEST(Recipes, DenseModelsGoThroughCheckArgs) {
  EXPECT_GE(kPassing.size(), 12u);
  for (const std::string& name : kPassing) {
    Words args = recipe(name);
    args.insert(args.begin(), "pretrain");
    args.push_back("--check-args");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_phalanx(args);
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << name;
    EXPECT_EQ(code, kExitDone) << name;
  }
}

TEST(Recipes, WhatARunOfThemWouldLackIsExactlyThis) {
  const auto lacking = [](const std::string& name) {
    Flags flags;
    for (const Problem& problem : not_in_this_build(parse(name).options))
      flags.insert(problem.flag);
    return flags;
  };
  const Flags logs = {"--log-params-norm", "--log-num-zeros-in-grad"};
  for (const char* name : {"llama32_1b", "qwen3_4b", "gpt_345m", "gpt3_175b", "aws_gpt3",
                           "aws_llama2_70b", "europa_33b"})
    EXPECT_EQ(lacking(name), Flags{}) << name;
  for (const char* name : {"gpt3_7b_pp4", "gpt3_345m_fp16", "gpt3_345m_tp4", "gpt3_rope_pp2",
                           "gpt3_swiglu_pp4", "gpt3_full_recompute", "gpt3_15b_release"})
    EXPECT_EQ(lacking(name), logs) << name;
}

TEST(Recipes, Llama3InFp8IsRefusedForFp8) {
  EXPECT_EQ(refused(parse("llama3_8b_fp8").report),
            (Flags{"--fp8-format", "--fp8-amax-history-len", "--fp8-amax-compute-algo",
                   "--fp8-param-gather"}));
}

TEST(Recipes, Llama3OfSwissAiHasGradientsInBf16) {
  const auto parsed = parse("swissai_llama3_8b");
  EXPECT_EQ(refused(parsed.report), Flags{});
  EXPECT_EQ(parsed.options.optim.main_grads_dtype, StateDType::bf16);
}

TEST(Recipes, Llama3OfRocmIsRefusedForANegativeCount) {
  const ParseReport report = parse("rocm_llama3_70b").report;
  EXPECT_EQ(problems(report, ProblemKind::value), Flags{"--eval-iters"});
  EXPECT_EQ(report.problems.size(), 1u);
}

TEST(Recipes, MixtralIsTakenWithItsExperts) {
  const ParseResult mixtral = parse("mixtral_8x7b");
  EXPECT_EQ(refused(mixtral.report), Flags{});
  EXPECT_EQ(mixtral.options.model.moe.num_experts, 8);
  EXPECT_EQ(mixtral.options.parallel.expert_model_parallel_size, 8);
}

TEST(Recipes, DeepSeekIsRefusedForFp8AndOffloading) {
  EXPECT_EQ(refused(parse("deepseek_proxy").report),
            (Flags{"--fp8-format", "--fp8-recipe", "--fine-grained-activation-offloading",
                   "--offload-modules"}));
}

TEST(Recipes, ValuesArriveInTheConfigs) {
  const PretrainOptions release = parse("gpt3_15b_release").options;
  EXPECT_EQ(release.optim.decoupled_lr, 5e-4);
  EXPECT_EQ(release.optim.decoupled_min_lr, 4.5e-5);
  EXPECT_EQ(release.model.activation(), MlpActivation::squared_relu);
  EXPECT_EQ(release.model.query_groups(), 8);
  EXPECT_EQ(release.train.num_micro_batches(), 288);
  EXPECT_EQ(release.train.train_samples, 19531250);
  const PretrainOptions llama = parse("llama32_1b").options;
  EXPECT_TRUE(llama.model.use_rope_scaling);
  EXPECT_FALSE(llama.model.has_linear_bias());
  EXPECT_EQ(llama.model.padded_vocab(), 131072);
  const PretrainOptions qwen = parse("qwen3_4b").options;
  EXPECT_TRUE(qwen.model.qk_layernorm);
  EXPECT_EQ(qwen.model.head_dim(), 128);
  EXPECT_EQ(parse("europa_33b").options.train.recompute_granularity,
            RecomputeGranularity::selective);
  EXPECT_EQ(parse("gpt3_full_recompute").options.train.recompute_granularity,
            RecomputeGranularity::full);
}

}  // namespace
}  // namespace phx
