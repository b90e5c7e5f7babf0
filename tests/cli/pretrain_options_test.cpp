#include "phalanx/cli/pretrain_options.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/small_args.h"
#include "phalanx/base/error.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(PretrainOptions, TheVocabularyIsPaddedForTheTensorParallelRanks) {
  const Texts flags = {"--train-iters", "1", "--vocab-size", "101", "--tensor-model-parallel-size"};
  const auto padded = [&](const char* ranks, const char* multiple) {
    Texts args = small(flags);
    args.insert(args.end(), {ranks, "--make-vocab-size-divisible-by", multiple});
    const ParseResult result = parse_pretrain(args);
    EXPECT_TRUE(result.report.ok()) << format_problems(result.report.problems);
    return result.options.model.padded_vocab_size;
  };
  EXPECT_EQ(padded("1", "8"), 104);
  EXPECT_EQ(padded("2", "8"), 112);
  EXPECT_EQ(padded("4", "1"), 104);
}

TEST(PretrainOptions, BatchesMayGrowOverTheRun) {
  const auto growing = [](const char* sizes) {
    return small({"--train-samples", "100", "--step-batch-size-schedule", sizes});
  };
  const ParseResult result = parse_pretrain(growing("0:4 1K:8"), 2);
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  const nlohmann::json values = nlohmann::json::parse(result.options.to_json());
  EXPECT_EQ(values["step_batch_size_schedule"], "0:4 1K:8");
  EXPECT_TRUE(values["global_batch_size"].is_null());
  EXPECT_EQ(parse_pretrain(growing("0:2 1K:4"), 2).report.problems[0].text,
            "--step-batch-size-schedule: size 2 is not a multiple of --micro-batch-size 2 x data "
            "parallel 2 = 4");
  EXPECT_EQ(problems(growing("1:2 x")).size(), 2u);
  const Texts most = problems(
      small({"--train-iters", "2147483647", "--step-batch-size-schedule", "0:2 100T:16777216",
             "--seq-length", "2147483647", "--max-position-embeddings", "2147483647",
             "--position-embedding-type", "rope"}));
  EXPECT_EQ(most.size(), 1u) << "more than 2^60 tokens";
}

TEST(PretrainOptions, WhatHoldsAnywayIsTakenWithoutEffect) {
  const ParseResult result = parse_pretrain(small({"--train-iters", "1", "--exit-signal-handler",
                                                   "--log-throughput", "--sgd-momentum", "0.9"}));
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  Texts flags;
  for (const auto& [flag, why] : result.report.implied) flags.push_back(flag);
  EXPECT_EQ(flags, (Texts{"--exit-signal-handler", "--log-throughput", "--sgd-momentum"}));
}

TEST(PretrainOptions, OtherOptimizersAreRefused) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--verify-integrity", "--optimizer", "muon",
                            "--muon-momentum", "0.5"})),
            (Texts{"--optimizer muon: this optimizer is not in this build yet",
                   "this optimizer is not in this build yet"}));
}

TEST(PretrainOptions, SgdHasAMomentumOf32BitsAndNothingOfAdam) {
  const ParseResult result =
      parse_pretrain(small({"--train-iters", "1", "--optimizer", "sgd", "--sgd-momentum", "0.5",
                            "--adam-beta1", "0.8"}));
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  EXPECT_EQ(result.options.optim.sgd_momentum, 0.5);
  ASSERT_EQ(result.report.implied.size(), 1u);
  EXPECT_EQ(result.report.implied[0].first, "--adam-beta1");
  EXPECT_EQ(problems(small({"--train-iters", "1", "--optimizer", "sgd", "--bf16",
                            "--use-precision-aware-optimizer", "--exp-avg-dtype", "bf16"})),
            Texts{"--exp-avg-dtype bf16 is for --optimizer adam; SGD's state has 32 bits"});
}

TEST(PretrainOptions, FlagsOfContextParallelismAreIdleWhereNoLayerReadsThem) {
  const auto idle = [](Texts extra) {
    extra.insert(extra.end(), {"--train-iters", "1"});
    const ParseResult result = parse_pretrain(small(extra));
    EXPECT_TRUE(result.report.ok()) << format_problems(result.report.problems);
    Texts flags;
    for (const auto& [flag, why] : result.report.implied) flags.push_back(flag + ": " + why);
    return flags;
  };
  EXPECT_EQ(idle({"--cp-comm-type", "a2a+p2p", "--hierarchical-context-parallel-sizes", "2", "2"}),
            (Texts{"--cp-comm-type: a rank has whole sequences at CP 1",
                   "--hierarchical-context-parallel-sizes: a rank has whole sequences at CP 1"}));
  const Texts cp = {
      "--context-parallel-size", "2", "--hierarchical-context-parallel-sizes", "2", "1",
      "--cp-comm-type"};
  Texts ring = cp, both = cp;
  ring.emplace_back("p2p");
  both.emplace_back("a2a+p2p");
  EXPECT_EQ(idle(ring), Texts{"--hierarchical-context-parallel-sizes: no layer has --cp-comm-type "
                              "a2a+p2p"});
  EXPECT_EQ(idle(both), Texts{});
}

TEST(PretrainOptions, TheByteTokenizerKnowsItsVocabulary) {
  Texts args = small({"--train-iters", "1", "--tokenizer-type", "ByteTokenizer"});
  EXPECT_EQ(problems(args), Texts{"--vocab-size 100 is too small for --tokenizer-type "
                                  "ByteTokenizer, which has 257 tokens"});
  const auto at = std::find(args.begin(), args.end(), "--vocab-size");
  args.erase(at, at + 2);
  const ParseResult result = parse_pretrain(args);
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  EXPECT_EQ(result.options.model.vocab_size, 257);
  EXPECT_EQ(result.options.model.padded_vocab(), 384);
}

TEST(PretrainOptions, Gpt2sTwoFilesAreItsTokenizer) {  // as in Megatron's pretrain_gpt.py
  const Texts files = {"--train-iters", "1", "--vocab-file", "v.json", "--merge-file", "m.txt"};
  EXPECT_EQ(parse_pretrain(small(files)).options.data.tokenizer_type, "GPT2BPETokenizer");
  Texts other = files;
  other.insert(other.end(), {"--tokenizer-type", "NullTokenizer"});
  EXPECT_EQ(parse_pretrain(small(other)).options.data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(parse_pretrain(small({"--train-iters", "1"})).options.data.tokenizer_type, "");
}

TEST(PretrainOptions, AnEmptyCommandLineNamesEverythingThatIsMissing) {
  std::vector<std::string> flags;
  for (const Problem& problem : parse_pretrain(Texts{}).report.problems) {
    flags.push_back(problem.flag);
  }
  EXPECT_EQ(flags, (Texts{"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length",
                          "--max-position-embeddings", "--micro-batch-size", "--lr",
                          "--train-iters", "--vocab-size", "--data-path"}));
}

TEST(PretrainOptions, EveryStageTellsItsProblemsAtOnce) {
  EXPECT_EQ(
      problems(small({"--train-iters", "1", "--hidden-size", "66", "--global-batch-size", "7"})),
      (Texts{"--hidden-size 66 is not a multiple of --num-attention-heads 4",
             "--global-batch-size 7 is not a multiple of --micro-batch-size 2 x data parallel "
             "1 = 2"}));
  // A refused flag, an unknown one, a missing one, rules of the model, the run and the layout, the
  // ranks, and the tokenizer's file.
  EXPECT_EQ(
      problems(small({"--mtp-use-repeated-layer", "--nonsense", "--hidden-size", "66",
                      "--tensor-model-parallel-size", "3", "--global-batch-size", "7", "--profile",
                      "--profile-ranks", "9", "--tokenizer-type", "SentencePieceTokenizer",
                      "--tokenizer-model",
                      std::string(PHX_TEST_DATA) + "/tokenizers/sentencepiece.model"})),
      (Texts{
          "each token ahead has a layer of its own here, which the gradients of all losses reach",
          "--nonsense is no flag of Phalanx or Megatron",
          "--hidden-size 66 is not a multiple of --num-attention-heads 4",
          "one of --train-iters and --train-samples is required: a run has one length",
          "--num-attention-heads 4 is not a multiple of --tensor-model-parallel-size 3",
          "--num-query-groups 4 and --tensor-model-parallel-size 3: neither is a multiple of the "
          "other",
          "--global-batch-size 7 is not a multiple of --micro-batch-size 2 x data parallel 1 = 2",
          "--profile-ranks 9: there is no rank 9 among 3, counted from 0",
          "--vocab-size 100 is too small for the tokenizer's 288 tokens"}));
  // What datasets and tokenizers would say later: the seed of samples that are made up, weights of
  // a blend, and the tokenizer that chats need.
  const std::string seed =
      "--seed 99999999999 is too large for NumPy's generator, which shuffles the samples";
  EXPECT_EQ(problems(small({"--train-iters", "1", "--seed", "99999999999", "--hidden-size", "66"})),
            (Texts{"--hidden-size 66 is not a multiple of --num-attention-heads 4", seed}));
  Texts args = small({"--train-iters", "1", "--seed", "99999999999", "--data-path", "-1", "a", "2",
                      "b", "--profile", "--profile-ranks", "9"});
  std::erase(args, "--mock-data");
  EXPECT_EQ(problems(args), (Texts{"--data-path gives a the weight -1; a weight is above 0", seed,
                                   "--profile-ranks 9: there is no rank 9 among 1, counted from "
                                   "0"}));
  args = small({"--train-iters", "1", "--seed", "99999999999", "--data-path", "a", "--sft"});
  std::erase(args, "--mock-data");
  EXPECT_EQ(problems(args),
            (Texts{seed, "--tokenizer-type is missing: --sft reads chats, which are text"}));
  args.insert(args.end(), {"--tokenizer-type", "ByteTokenizer", "--seed", "1"});
  std::replace(args.begin(), args.end(), std::string("100"), std::string("257"));
  EXPECT_EQ(problems(args), Texts());
}

TEST(PretrainOptions, AValueThatWasNotUnderstoodIsNotCountedWith) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--num-layers", "x",
                            "--pipeline-model-parallel-size", "3"})),
            Texts{"--num-layers x is not an integer"});
  EXPECT_EQ(
      problems(small({"--train-iters", "1", "--step-batch-size-schedule", "nonsense"})).size(), 1u);
  EXPECT_EQ(problems(small({"--train-iters", "1", "--num-layers", "4", "--global-batch-size", "8",
                            "--pipeline-model-parallel-size", "2",
                            "--num-layers-per-virtual-pipeline-stage", "1",
                            "--num-virtual-stages-per-pipeline-rank", "2"}))
                .size(),
            1u);
}

TEST(PretrainOptions, RanksOfOneProcessAreRefusedUnderALauncher) {
  const ParseResult result =
      parse_pretrain(small({"--train-iters", "1", "--local-ranks", "4"}), /*world=*/2);
  ASSERT_EQ(result.report.problems.size(), 1u) << format_problems(result.report.problems);
  EXPECT_EQ(result.report.problems[0].text,
            "--local-ranks 4 is for ranks in one process, but a launcher started 2 processes");
}

TEST(PretrainOptions, ResolvedValuesAreInTheTableAndTheJson) {
  const PretrainOptions options = parse_pretrain(small({"--train-iters", "1"})).options;
  const nlohmann::json values = nlohmann::json::parse(options.to_json());
  EXPECT_EQ(values["ffn_hidden_size"], 128);
  EXPECT_EQ(values["kv_channels"], 8);
  EXPECT_EQ(values["global_batch_size"], 2);
  EXPECT_EQ(values["padded_vocab_size"], 128);
  EXPECT_NE(options.table().find("  ffn_hidden_size ................................ 128\n"),
            std::string::npos);
}

TEST(PretrainOptions, TheJsonCopyBringsTheSameOptionsBack) {
  const PretrainOptions options =
      parse_pretrain(small({"--train-iters", "1", "--window-size", "7,0", "--no-save-optim",
                            "--lr-decay-style", "inverse-square-root", "--window-attn-skip-freq",
                            "[1]+[0]", "--adam-eps", "1e-7"}))
          .options;
  const std::string copy = options.to_json();
  EXPECT_EQ(PretrainOptions::from_json(copy).to_json(), copy);
  EXPECT_EQ(PretrainOptions::from_json(options.to_json(2)).to_json(), copy);
  nlohmann::json odd = nlohmann::json::parse(copy);
  odd["hidden_sice"] = 3;
  EXPECT_THROW(PretrainOptions::from_json(odd.dump()), Error);
}

TEST(PretrainOptions, GemmaReadsFromYaml) {
  const ParseResult result = parse_pretrain(Texts{
      "--config", std::string(PHX_TEST_DATA) + "/configs/gemma2_2b.yaml", "--train-iters", "7"});
  ASSERT_TRUE(result.report.ok()) << format_problems(result.report.problems);
  const TransformerConfig& model = result.options.model;
  EXPECT_EQ(model.activation(), MlpActivation::geglu_tanh);
  EXPECT_EQ(model.softmax_scale(), 1.0 / 16);
  EXPECT_TRUE(model.layer_window(0).has_value());
  EXPECT_FALSE(model.layer_window(1).has_value());
  EXPECT_FALSE(model.has_linear_bias());
  EXPECT_EQ(result.options.train.train_iters, 7);
}

TEST(PretrainOptions, HelpHasEveryGroupAndAnExample) {
  const std::string help = pretrain_help();
  for (const char* part : {"\nModel\n", "\nRanks\n", "\nRun\n", "\nOptimizer\n", "\nData\n",
                           "example:\n  phalanx pretrain ", "--config FILE"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace phx
