#include <gtest/gtest.h>

#include "cli/small_args.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(PretrainRules, SchedulesCountAsTheRunDoes) {
  EXPECT_EQ(problems(small({"--train-iters", "10", "--lr-warmup-samples", "4"})),
            Texts{"--lr-warmup-samples 4 does not go with --train-iters 10"});
  EXPECT_EQ(problems(small({"--train-samples", "10", "--lr-decay-iters", "4"})),
            Texts{"--lr-decay-iters 4 does not go with --train-samples 10"});
  EXPECT_EQ(problems(small({"--train-samples", "10", "--lr-decay-samples", "4"})), Texts{});
}

TEST(PretrainRules, WarmUpIsShorterThanTheDecay) {
  EXPECT_EQ(problems(small({"--train-iters", "10", "--lr-warmup-iters", "10"})),
            Texts{"--lr-warmup-iters 10 leaves nothing of --train-iters 10"});
  EXPECT_EQ(
      problems(small({"--train-iters", "10", "--lr-decay-iters", "5", "--lr-warmup-iters", "6"})),
      Texts{"--lr-warmup-iters 6 leaves nothing of --lr-decay-iters 5"});
  EXPECT_EQ(problems(small(
                {"--train-iters", "10", "--lr-decay-style", "WSD", "--lr-wsd-decay-iters", "11"})),
            Texts{"--lr-wsd-decay-iters 11 is more than --train-iters 10"});
}

TEST(PretrainRules, TrainingHasAShareOfTheData) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--split", "0,1,1"})),
            Texts{"--split 0,1,1 leaves nothing for training, its first share"});
  EXPECT_EQ(problems(small({"--train-iters", "1", "--split", "0,1,1", "--skip-train"})), Texts{});
  EXPECT_EQ(problems(small({"--train-iters", "1", "--split", "0,x"})),
            Texts{"--split 0,x has no share above 0"});
}

TEST(PretrainRules, TheTokensOfARunCanBeCounted) {
  const Texts found =
      problems(small({"--train-iters", "2147483647", "--global-batch-size", "16777216",
                      "--seq-length", "2147483647", "--max-position-embeddings", "2147483647",
                      "--position-embedding-type", "rope"}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(
      found[0].starts_with("--train-iters 2147483647 at --seq-length 2147483647 make about"))
      << found[0];
}

TEST(PretrainRules, NoMoreLayersAreRecomputedThanThereAre) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--recompute-granularity", "full",
                            "--recompute-method", "block", "--recompute-num-layers", "3"})),
            Texts{"--recompute-num-layers 3 is more than --num-layers 2"});
}

TEST(PretrainRules, NoPositionEmbeddingDoesNotGoWithLearnedPositions) {
  EXPECT_EQ(
      problems(small({"--train-iters", "1", "--no-position-embedding"})),
      Texts{"--no-position-embedding contradicts --position-embedding-type learned_absolute"});
  EXPECT_EQ(problems(small({"--train-iters", "1", "--no-position-embedding",
                            "--use-rotary-position-embeddings"})),
            Texts{});
}

TEST(PretrainRules, TheVocabularyAndTheTokensComeFromSomewhere) {
  const Texts found = problems({"--num-layers", "2", "--hidden-size", "32", "--num-attention-heads",
                                "4", "--seq-length", "16", "--max-position-embeddings", "16",
                                "--micro-batch-size", "2", "--lr", "1e-3", "--train-iters", "1"});
  EXPECT_EQ(found, (Texts{"--vocab-size is required when no tokenizer tells it",
                          "one of --data-path, --train-data-path, --token-file and --mock-data is "
                          "required"}));
}

TEST(PretrainRules, AverageOverTokensAndMicroBatchesContradictEachOther) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--calculate-per-token-loss", "--loss-average",
                            "micro-batch"})),
            (Texts{"--loss-average micro-batch contradicts --calculate-per-token-loss, the average "
                   "over tokens"}));
}

TEST(PretrainRules, OffloadedLayersAreThoseOfOneStage) {
  EXPECT_EQ(problems(small({"--train-iters", "1", "--cpu-offloading-num-layers", "3"})),
            (Texts{"--cpu-offloading-num-layers 3 is more than --num-layers 2"}));
}

TEST(PretrainRules, EveryRuleSaysWhatItIsAbout) {
  const PretrainOptions options;
  for (const Rule& rule : pretrain_rules(options)) EXPECT_GT(rule.text.size(), 10u) << rule.text;
  EXPECT_GT(pretrain_rules(options).size(), 20u) << "those of all rooms";
}

}  // namespace
}  // namespace phx
