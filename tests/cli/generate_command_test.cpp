#include "phalanx/cli/generate_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "cli/captured.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/exit_codes.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::run;

TEST(GenerateCommand, AllBadValuesAreToldAtOnce) {
  const Outcome outcome = run({"generate", "--top-k", "-1", "--ckpt-step", "0", "--threads", "-2",
                               "--temperature", "inf", "--top-p", "1.5", "--device", "gpu"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--top-k -1 should be 0 or more"),
                                 HasSubstr("--ckpt-step 0 should be positive"),
                                 HasSubstr("--threads -2 should be between 0 and 4096"),
                                 HasSubstr("--temperature inf is not a number"),
                                 HasSubstr("--top-p 1.5 should be between 0 and 1"),
                                 HasSubstr("--device gpu is not one of auto, cpu, cuda"),
                                 HasSubstr("--load is required")));
}

TEST(GenerateCommand, AFolderWithoutCheckpointsIsAFailureAndNotAWrongUsage) {
  const TempFolder folder;
  const Outcome outcome = run({"generate", "--load", folder / "none"});
  EXPECT_EQ(outcome.code, kExitFailed);
  EXPECT_THAT(outcome.err, HasSubstr("holds no checkpoint"));
}

// A model of learned positions, trained for no iteration, then asked for too much text.
TEST(GenerateCommand, MoreTextThanLearnedPositionsIsAWrongUsage) {
  const TempFolder folder;
  const std::string save = folder / "ckpt";
  const Outcome trained = run({"pretrain",
                               "--num-layers",
                               "1",
                               "--hidden-size",
                               "16",
                               "--num-attention-heads",
                               "2",
                               "--seq-length",
                               "8",
                               "--max-position-embeddings",
                               "16",
                               "--tokenizer-type",
                               "ByteTokenizer",
                               "--mock-data",
                               "--micro-batch-size",
                               "1",
                               "--train-iters",
                               "1",
                               "--lr",
                               "1e-3",
                               "--save",
                               save,
                               "--save-interval",
                               "1",
                               "--device",
                               "cpu",
                               "--threads",
                               "1"});
  ASSERT_EQ(trained.code, kExitDone) << trained.err;
  const std::vector<std::string> generate = {"generate", "--load",    save, "--device",
                                             "cpu",      "--threads", "1",  "--prompt",
                                             "Once",     "--tokens"};
  std::vector<std::string> fitting = generate, longer = generate;
  fitting.push_back("11");
  longer.push_back("12");
  EXPECT_EQ(run(fitting).code, kExitDone);
  const Outcome outcome = run(longer);
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_EQ(outcome.err,
            "error: --tokens 12 and a --prompt of 4 bytes make 17 positions, but the model has 16\n"
            "  hint: use --tokens 11\n");
}

}  // namespace
}  // namespace phx
