#include "phalanx/cli/inspect_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;
using testing::Outcome;
using testing::run;

Texts with(Texts args, const Texts& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Texts training(const std::string& save, const Texts& more) {
  return with(
      {"pretrain", "--micro-batch-size", "1", "--global-batch-size", "2", "--lr", "1e-3",
       "--mock-data", "--device", "cpu", "--threads", "1", "--save", save, "--save-interval", "1"},
      more);
}

const Texts kModel = {"--num-layers",
                      "2",
                      "--hidden-size",
                      "16",
                      "--num-attention-heads",
                      "2",
                      "--seq-length",
                      "8",
                      "--max-position-embeddings",
                      "16",
                      "--vocab-size",
                      "50"};

TEST(InspectCheckpoint, SaysWhatIsInsideVerifiesAndCompares) {
  const TempFolder folder;
  const std::string a = folder / "a", b = folder / "b";
  const Outcome trained = run(training(a, with(kModel, {"--train-iters", "2", "--local-ranks", "2",
                                                        "--use-distributed-optimizer"})));
  ASSERT_EQ(trained.code, kExitDone) << trained.err;
  ASSERT_EQ(run(training(b, with(kModel, {"--train-iters", "2", "--seed", "5"}))).code, kExitDone);

  const Outcome text = run({"inspect", "checkpoint", a});
  EXPECT_EQ(text.code, kExitDone) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("iteration 2, "), HasSubstr("in 2 files"),
                    HasSubstr("embedding.word_embeddings.weight"), HasSubstr("F32 [50, 16]"),
                    HasSubstr("consumed_train_samples"), HasSubstr("hidden_size")));
  const Outcome json = run({"inspect", "checkpoint", a, "--ckpt-step", "1", "--json"});
  const auto values = nlohmann::json::parse(json.out);
  EXPECT_EQ(values["iteration"], 1);
  EXPECT_EQ(values["tensors"]["decoder.final_layernorm.weight"]["shape"],
            nlohmann::json::array({16}));
  EXPECT_EQ(values["info"]["options"]["num_layers"], 2);

  EXPECT_EQ(run({"inspect", "checkpoint", a, "--verify"}).code, kExitDone);
  EXPECT_EQ(run({"inspect", "checkpoint", "--diff", a, a}).code, kExitDone);
  const Outcome other = run({"inspect", "checkpoint", a, "--diff", b});
  EXPECT_EQ(other.code, kExitFailed);
  EXPECT_THAT(other.out, HasSubstr("embedding.word_embeddings.weight: 800 of 800 elements, by "));

  const Path shard = checkpoint_path(a, 2) / "shard_00001.safetensors";
  std::filesystem::resize_file(shard, std::filesystem::file_size(shard) - 1);
  const Outcome damaged = run({"inspect", "checkpoint", a, "--verify"});
  EXPECT_EQ(damaged.code, kExitFailed);
  EXPECT_THAT(damaged.err, HasSubstr(shard.string()));
}

TEST(InspectCheckpoint, WantsToKnowWhere) {
  EXPECT_EQ(run({"inspect"}).code, kExitUsage);
  EXPECT_EQ(run({"inspect", "checkpoint"}).code, kExitUsage);
  const TempFolder folder;
  const Outcome none = run({"inspect", "checkpoint", folder.path().string()});
  EXPECT_EQ(none.code, kExitFailed);
  EXPECT_THAT(none.err, HasSubstr("is no checkpoint, and holds none"));
}

TEST(UseCheckpointArgs, TheModelComesFromTheCheckpointAndFlagsThatDisagreeAreRefused) {
  const TempFolder folder;
  const std::string save = folder / "a";
  ASSERT_EQ(run(training(save, with(kModel, {"--train-iters", "1", "--bf16"}))).code, kExitDone);
  const Texts resume = training(save, {"--load", save, "--use-checkpoint-args", "--train-iters",
                                       "2", "--bf16", "--seq-length", "8", "--lr-decay-style",
                                       "constant", "--override-opt-param-scheduler"});
  const Outcome resumed = run(with(resume, {"--tensor-model-parallel-size", "2"}));
  EXPECT_EQ(resumed.code, kExitDone) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("iteration 1, "));
  EXPECT_EQ(latest_checkpoint(save), 2);
  const Outcome other = run(with(resume, {"--num-layers", "3"}));
  EXPECT_EQ(other.code, kExitFailed);
  EXPECT_THAT(other.err, HasSubstr("--num-layers: 2 in the checkpoint, 3 now"));
  const Outcome none = run({"pretrain", "--use-checkpoint-args", "--load", folder / "none"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("holds no checkpoint"));
}

TEST(UseCheckpointArgs, AreTakenWhereNoFlagSaysHowLargeTheModelIs) {
  const TempFolder folder;
  const std::string save = folder / "a";
  ASSERT_EQ(run(training(save, with(kModel, {"--train-iters", "1"}))).code, kExitDone);
  const Texts rest = {"--load",
                      save,
                      "--train-iters",
                      "2",
                      "--seq-length",
                      "8",
                      "--lr-decay-style",
                      "constant",
                      "--override-opt-param-scheduler"};
  const Outcome resumed = run(training(save, rest));
  EXPECT_EQ(resumed.code, kExitDone) << resumed.err;
  EXPECT_EQ(latest_checkpoint(save), 2);
  const Outcome none = run({"pretrain", "--load", folder / "none", "--mock-data"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("--num-layers is required"));
}

}  // namespace
}  // namespace phx
