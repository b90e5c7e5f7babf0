// Public Megatron recipes, flag by flag: none is unknown, and what is refused is exactly this.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "cli/not_in_this_build.h"
#include "cli/pretrain_options.h"

namespace phx {
namespace {

using Flags = std::set<std::string>;

std::vector<std::string> recipe(const std::string& name) {
  std::ifstream in(std::string(PHX_TEST_DATA) + "/recipes/" + name + ".txt");
  EXPECT_TRUE(in.good()) << name;
  std::vector<std::string> args;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) args.push_back(word);
  }
  return args;
}

ParseResult parse(const std::string& name, std::vector<std::string> extra = {}) {
  std::vector<std::string> args = recipe(name);
  args.insert(args.end(), extra.begin(), extra.end());
  return parse_pretrain(args);
}

const std::vector<std::string> kOneRank = {
    "--tensor-model-parallel-size", "1", "--pipeline-model-parallel-size", "1",
    "--context-parallel-size",      "1", "--expert-model-parallel-size",   "1"};

// The flags refused; anything else that is wrong fails the test.
Flags refused(const ParseReport& report) {
  Flags flags;
  for (const Problem& problem : report.problems) {
    EXPECT_EQ(problem.kind, ProblemKind::refused) << problem.text;
    flags.insert(problem.flag);
  }
  return flags;
}

TEST(Recipes, DenseModelsPassOnOneRank) {
  for (const char* name :
       {"gpt_345m", "gpt3_175b", "llama2_7b", "llama31_8b", "mistral_7b", "qwen2_7b", "qwen3_8b"}) {
    const ParseResult result = parse(name, kOneRank);
    EXPECT_TRUE(result.report.ok()) << name << "\n" << format_problems(result.report.problems);
  }
}

TEST(Recipes, WhatARunOfThemWouldLackIsExactlyThis) {
  const auto lacking = [](const std::string& name) {
    Flags flags;
    for (const Problem& problem : not_in_this_build(parse(name, kOneRank).options)) {
      flags.insert(problem.flag);
    }
    return flags;
  };
  EXPECT_EQ(lacking("qwen2_7b"), Flags{});
  EXPECT_EQ(lacking("qwen3_8b"), Flags{});
  EXPECT_EQ(lacking("llama2_7b"), (Flags{"--data-path", "--tokenizer-type", "--tokenizer-model",
                                         "--use-checkpoint-opt-param-scheduler"}));
  EXPECT_EQ(lacking("mistral_7b"),
            (Flags{"--train-data-path", "--valid-data-path", "--tokenizer-type",
                   "--tokenizer-model", "--reset-position-ids", "--reset-attention-mask",
                   "--eod-mask-loss", "--save-retain-interval"}));
  EXPECT_EQ(lacking("nemotron_8b"),
            (Flags{"--data-path", "--data-cache-path", "--tokenizer-type", "--tokenizer-model"}));
}

TEST(Recipes, LargerLayoutsAreRefusedSizeBySize) {
  EXPECT_EQ(refused(parse("gpt3_175b").report),
            (Flags{"--tensor-model-parallel-size", "--pipeline-model-parallel-size"}));
  EXPECT_EQ(refused(parse("llama2_7b").report), Flags{"--tensor-model-parallel-size"});
  EXPECT_EQ(refused(parse("qwen3_8b").report), Flags{"--tensor-model-parallel-size"});
  EXPECT_EQ(refused(parse("llama3_70b").report),
            (Flags{"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
                   "--context-parallel-size", "--num-layers-per-virtual-pipeline-stage"}));
}

TEST(Recipes, Llama3InFp8IsRefusedForFp8AndTwoMoreThings) {
  EXPECT_EQ(refused(parse("llama3_8b").report),
            (Flags{"--fp8-format", "--fp8-amax-history-len", "--fp8-amax-compute-algo",
                   "--fp8-param-gather", "--decoupled-lr", "--decoupled-min-lr", "--profile",
                   "--profile-step-start", "--profile-step-end"}));
}

TEST(Recipes, NemotronIsRefusedForItsSecondLearningRateAlone) {
  EXPECT_EQ(refused(parse("nemotron_8b").report), (Flags{"--decoupled-lr", "--decoupled-min-lr"}));
}

TEST(Recipes, MixtralIsRefusedForItsExpertsAndItsLayout) {
  EXPECT_EQ(refused(parse("mixtral_8x7b").report),
            (Flags{"--num-experts", "--moe-router-topk", "--moe-router-load-balancing-type",
                   "--moe-aux-loss-coeff", "--moe-grouped-gemm", "--moe-token-dispatcher-type",
                   "--pipeline-model-parallel-size", "--expert-model-parallel-size"}));
}

TEST(Recipes, DeepSeekIsRefusedForExpertsLatentAttentionPredictionAndLayout) {
  EXPECT_EQ(refused(parse("deepseek_v3").report), (Flags{"--multi-latent-attention",
                                                         "--kv-lora-rank",
                                                         "--v-head-dim",
                                                         "--q-lora-rank",
                                                         "--qk-head-dim",
                                                         "--qk-pos-emb-head-dim",
                                                         "--num-experts",
                                                         "--moe-layer-freq",
                                                         "--moe-ffn-hidden-size",
                                                         "--moe-router-dtype",
                                                         "--moe-router-score-function",
                                                         "--moe-router-bias-update-rate",
                                                         "--moe-router-enable-expert-bias",
                                                         "--moe-router-topk",
                                                         "--moe-router-num-groups",
                                                         "--moe-router-group-topk",
                                                         "--moe-router-pre-softmax",
                                                         "--moe-router-topk-scaling-factor",
                                                         "--moe-shared-expert-overlap",
                                                         "--moe-shared-expert-intermediate-size",
                                                         "--moe-aux-loss-coeff",
                                                         "--moe-router-load-balancing-type",
                                                         "--moe-token-dispatcher-type",
                                                         "--moe-token-drop-policy",
                                                         "--mtp-num-layers",
                                                         "--mtp-loss-scaling-factor",
                                                         "--tensor-model-parallel-size",
                                                         "--pipeline-model-parallel-size",
                                                         "--expert-model-parallel-size"}));
}

TEST(Recipes, ValuesArriveInTheConfigs) {
  const PretrainOptions mistral = parse("mistral_7b").options;
  EXPECT_EQ(mistral.model.layer_window(0), (WindowSize{4095, 0}));
  EXPECT_EQ(mistral.model.query_groups(), 8);
  EXPECT_EQ(mistral.optim.lr_wsd_decay_style, WsdDecayStyle::minus_sqrt);
  EXPECT_EQ(mistral.train.num_micro_batches(), 64);
  EXPECT_EQ(mistral.train.recompute_granularity, RecomputeGranularity::full);
  const PretrainOptions qwen = parse("qwen2_7b").options;
  EXPECT_TRUE(qwen.model.has_qkv_bias());
  EXPECT_FALSE(qwen.model.has_linear_bias());
  EXPECT_EQ(qwen.model.padded_vocab(), 152064);
  const PretrainOptions llama = parse("llama31_8b").options;
  EXPECT_EQ(llama.data.data_path.size(), 4u);
  EXPECT_TRUE(llama.model.use_rope_scaling);
}

TEST(Recipes, GemmaReadsFromYaml) {
  const ParseResult result = parse_pretrain(std::vector<std::string>{
      "--config", std::string(PHX_TEST_DATA) + "/recipes/gemma2_2b.yaml", "--train-iters", "7"});
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  const TransformerConfig& model = result.options.model;
  EXPECT_EQ(model.activation(), MlpActivation::geglu_tanh);
  EXPECT_EQ(model.softmax_scale(), 1.0 / 16);
  EXPECT_TRUE(model.layer_window(0).has_value());
  EXPECT_FALSE(model.layer_window(1).has_value());
  EXPECT_FALSE(model.has_linear_bias());
  EXPECT_EQ(result.options.train.train_iters, 7);
}

}  // namespace
}  // namespace phx
