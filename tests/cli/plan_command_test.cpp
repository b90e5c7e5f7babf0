#include "phalanx/cli/plan_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
#include <vector>

#include "phalanx/base/file.h"
#include "phalanx/cli/usage_error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

// A small model of two layers; without --lr, --train-iters and data, which no plan depends on.
Words small_model() {
  std::istringstream words(
      "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --vocab-size 100 --micro-batch-size 1 --global-batch-size 8 "
      "--bf16");
  return {std::istream_iterator<std::string>(words), {}};
}

struct Ran {
  int exit_code;
  std::string out, err;
};

Ran plan(Words more, Words args = small_model()) {
  args.insert(args.end(), more.begin(), more.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int exit_code = run_plan(args);
  std::string out = testing::internal::GetCapturedStdout();
  return {exit_code, out, testing::internal::GetCapturedStderr()};
}

TEST(PlanCommand, ARunThatFitsExitsWithZero) {
  const Ran ran = plan({"--world-size", "8", "--tensor-model-parallel-size=2"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("8 ranks = TP 2 x CP 1 x DP 4 x PP 1"));
  EXPECT_THAT(ran.out, HasSubstr("fits: "));
  EXPECT_THAT(ran.out, HasSubstr("to start: stage 0 takes up to "));
  EXPECT_THAT(ran.out, HasSubstr("of 3 groups of ranks"));
  EXPECT_THAT(ran.out, HasSubstr("dp-cp  all_reduce"));
}

TEST(PlanCommand, ARunThatDoesNotFitExitsWithOneAndSaysWhatWouldHelp) {
  const Ran ran = plan(
      {"--world-size", "4", "--gpu-memory-gib", "0.0325", "--library-memory-gib", "0", "--bytes"});
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("does not fit: stage 0 needs "));
  EXPECT_THAT(ran.out, HasSubstr("  --use-distributed-optimizer\n"));
  EXPECT_THAT(ran.out, HasSubstr("  --recompute-granularity full"));
  EXPECT_THAT(ran.out, HasSubstr("  --tensor-model-parallel-size 2\n"));
}

TEST(PlanCommand, ACpuHasNoGpuToFit) {
  const Ran ran = plan({"--target", "cpu", "--gpu-memory-gib", "0.001"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, Not(HasSubstr("fit")));
}

TEST(PlanCommand, WrongFlagsOfBothKindsAreToldAtOnce) {
  const Ran ran = plan({"--target", "tpu", "--world-size", "4", "--hiden-size", "3"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--target tpu"));
  EXPECT_THAT(ran.err, HasSubstr("did you mean --hidden-size?"));
}

TEST(PlanCommand, AWorldThatTheLayoutDoesNotDivideIsRefused) {
  const Ran ran = plan({"--world-size", "6", "--tensor-model-parallel-size", "4"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("there are 6 ranks, which is not a multiple of TP 4"));
}

TEST(PlanCommand, TakesACommandLineOfPretrainAsItIs) {
  const Words run = {"--local-ranks",
                     "4",
                     "--lr",
                     "1e-3",
                     "--train-iters",
                     "10",
                     "--save",
                     "there",
                     "--load",
                     "elsewhere",
                     "--data-path",
                     "d",
                     "--device",
                     "cpu",
                     "--use-mcore-models",
                     "--threads",
                     "1",
                     "--tensor-model-parallel-size",
                     "2",
                     "--save-interval",
                     "5"};
  const Ran ran = plan(run);
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("4 ranks = TP 2 x CP 1 x DP 2 x PP 1"));
  EXPECT_THAT(ran.out, HasSubstr("without meaning for phalanx plan: --data-path, --save, "
                                 "--save-interval, --threads, --lr, --train-iters, --load, "
                                 "--use-mcore-models\n"));
  EXPECT_THAT(ran.out, Not(HasSubstr("fit")));  // --device cpu
  Words more = run;
  more.insert(more.end(), {"--world-size", "8"});
  const Ran other = plan(more);
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("8 ranks = TP 2"));
  EXPECT_THAT(other.out, HasSubstr("--local-ranks"));
}

TEST(PlanCommand, ATokenizerThatIsNotHereIsNamed) {
  Words args = small_model();
  args.erase(args.begin() + 10, args.begin() + 12);  // --vocab-size 100
  EXPECT_THROW(
      {
        try {
          plan({"--vocab-file", "nowhere.json", "--merge-file", "m.txt"}, args);
        } catch (const UsageError& error) {
          testing::internal::GetCapturedStdout();
          testing::internal::GetCapturedStderr();
          EXPECT_THAT(error.what(), HasSubstr("nowhere.json"));
          EXPECT_THAT(error.what(), HasSubstr("hint: --vocab-size"));
          throw;
        }
      },
      UsageError);
}

TEST(PlanCommand, HelpShowsAnExample) {
  const Ran ran = plan({"--help"}, {});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("--gpu-memory-gib"));
  EXPECT_THAT(ran.out, HasSubstr("phalanx plan --config llama3-8b.yaml --world-size 64"));
}

TEST(PlanCommand, DrawsWhatItPlanned) {
  const TempFolder folder;
  const Path file = folder / "memory.svg";
  const Ran ran = plan({"--svg", file.string()});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(read_file(file), HasSubstr(">stage 0<"));
}

}  // namespace
}  // namespace phx
