#include "phalanx/cli/train_main.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/small_args.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::small;

TEST(TrainMain, OptionsBecomeARuntime) {
  TrainConfig train;
  train.device = DeviceChoice::cpu;
  train.threads = 3;
  train.deterministic_mode = true;
  const RuntimeOptions options = runtime_options(train);
  EXPECT_EQ(options.kind, DeviceKind::cpu);
  EXPECT_EQ(options.threads, 3);
  EXPECT_TRUE(options.deterministic);
  train.threads = 0;
  EXPECT_GE(runtime_options(train).threads, 1) << "one a core";
  train.device = DeviceChoice::automatic;
  train.fp64 = true;
  EXPECT_EQ(runtime_options(train).kind, DeviceKind::cpu) << "no GPU computes in doubles";
}

TEST(TrainMain, ADeviceThatIsNotThereIsSaidWithTheWayOut) {
  if (cuda_available(nullptr)) GTEST_SKIP() << "there is a GPU";
  TrainConfig train;
  train.device = DeviceChoice::cuda;
  const std::string error = error_of([&] { runtime_options(train); });
  EXPECT_TRUE(error.starts_with("--device cuda: ")) << error;
  EXPECT_TRUE(error.ends_with("\n  hint: --device cpu")) << error;
}

// Whoever reads the copy later may be in another folder.
TEST(TrainMain, PathsOfTheTokenizerAreKeptWhole) {
  PretrainOptions options = parse_pretrain(small({"--train-iters", "1"})).options;
  options.data.tokenizer_model = ".";
  options.data.vocab_file = "not/there.json";
  const auto json = nlohmann::json::parse(run_config(options).json);
  EXPECT_EQ(json.at("tokenizer_model"), std::filesystem::absolute(".").string());
  EXPECT_EQ(json.at("vocab_file"), "not/there.json") << "what is not there stays as it was typed";
  EXPECT_EQ(run_config(options).data.tokenizer_model, ".");
}

TEST(TrainMain, EveryRankThatSharesSequencesHasAllWeights) {
  const auto bytes = [](testing::Texts extra, int world) {
    extra.insert(extra.end(), {"--train-iters", "1"});
    return least_bytes(parse_pretrain(small(extra)).options, world);
  };
  const int64_t one = bytes({}, 1);
  EXPECT_EQ(bytes({}, 4), 4 * one);
  EXPECT_EQ(bytes({"--context-parallel-size", "4"}, 4), 4 * one);
  EXPECT_EQ(bytes({"--tensor-model-parallel-size", "4"}, 4), one);
  const int64_t experts = bytes({"--num-experts", "4"}, 1);
  EXPECT_EQ(bytes({"--num-experts", "4", "--expert-model-parallel-size", "4",
                   "--context-parallel-size", "4"},
                  4),
            experts)
      << "at the least: experts exist once";
}

TEST(TrainMain, OneRankAlwaysFitsAndAMillionDoNot) {
  const PretrainOptions options = parse_pretrain(small({"--train-iters", "1"})).options;
  EXPECT_TRUE(room_problems(options, 1, true).empty());
  const Problems problems = room_problems(options, 1'000'000'000, false);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_TRUE(problems[0].text.starts_with("the layout's ranks, 1000000000: ")) << problems[0].text;
  EXPECT_FALSE(problems[0].hint.empty());
}

}  // namespace
}  // namespace phx
