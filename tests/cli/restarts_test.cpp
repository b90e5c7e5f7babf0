// `phalanx launch --max-restarts`: ranks are killed, and the run ends with the bytes of a run that
// nobody disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "cli/launched_run.h"
#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFlags = str_cat(kSmallRun, " --train-iters 300");

struct Fault {
  const char* name;
  const char* layout;
  int ranks, victim;
};

class RestartedRun : public ::testing::TestWithParam<Fault> {};

TEST_P(RestartedRun, EndsWithTheBytesOfAnUndisturbedOne) {
  const Fault& fault = GetParam();
  const TempFolder folder;
  const auto arguments = [&](const char* save) {
    return str_cat("--nproc ", fault.ranks, " --max-restarts 2 pretrain", kFlags, " ", fault.layout,
                   " --save ", (folder / save).string());
  };
  Launcher undisturbed(arguments("undisturbed"), folder / "log");
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.said();
  Launcher launcher(arguments("disturbed"), folder / "log");
  std::vector<pid_t> killed;
  for (const int64_t iteration : {40, 100}) {
    ASSERT_TRUE(comes_to(folder / "disturbed", iteration)) << launcher.said();
    std::vector<pid_t> ranks = launcher.ranks();
    // Those that come after the first kill.
    for (int i = 0; i < 6000 && (int(ranks.size()) != fault.ranks || ranks == killed); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ranks = launcher.ranks();
    }
    ASSERT_EQ(int(ranks.size()), fault.ranks) << launcher.said();
    ASSERT_EQ(::kill(ranks[size_t(fault.victim)], SIGKILL), 0);
    killed = ranks;
  }
  EXPECT_EQ(launcher.wait(), 0) << launcher.said();
  const std::string said = launcher.said();
  EXPECT_THAT(said, HasSubstr(str_cat("warning: rank ", fault.victim,
                                      " was killed by signal 9 (Killed), first of all; restart 1 "
                                      "of 2 in 1 s, newest checkpoint: ")));
  EXPECT_THAT(said, HasSubstr("--auto-resume: the run goes on from "));
  EXPECT_THAT(said, Not(HasSubstr("restart 2 of 2")));  // the second had a new checkpoint
  expect_same_end(folder / "disturbed", folder / "undisturbed", 300);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, RestartedRun,
    ::testing::Values(Fault{"rank_0_of_data_ranks", "", 2, 0},
                      Fault{"a_rank_with_a_part_of_the_optimizer",
                            "--use-distributed-optimizer --bf16", 2, 1},
                      Fault{"a_rank_with_a_part_of_the_weights", "--use-megatron-fsdp", 2, 1},
                      Fault{"a_stage_of_a_pipeline",
                            "--tensor-model-parallel-size 2 --sequence-parallel "
                            "--pipeline-model-parallel-size 2",
                            4, 2}),
    [](const auto& info) { return std::string(info.param.name); });

// Each machine's launcher starts its own ranks again; they meet as at the first start.
TEST(Restarts, LaunchersOfSeveralMachinesStartTheirRanksAgain) {
  const TempFolder folder;
  ::setenv("PHX_JOB_KEY", "0123456789abcdef0123456789abcdef", 1);
  const auto node = [&](int rank, int port) {
    return str_cat("--nproc 1 --nnodes 2 --node-rank ", rank,
                   " --master-addr 127.0.0.1 --master-port ", port, " --max-restarts 5 pretrain",
                   kFlags, " --use-distributed-optimizer --save ", folder / "disturbed");
  };
  const int port = 20000 + ::getpid() % 20000;
  Launcher first(node(0, port), folder / "log0"), second(node(1, port), folder / "log1");
  ::unsetenv("PHX_JOB_KEY");
  ASSERT_TRUE(comes_to(folder / "disturbed", 40)) << first.said() << second.said();
  const std::vector<pid_t> ranks = second.ranks();
  ASSERT_EQ(ranks.size(), 1u) << second.said();
  ASSERT_EQ(::kill(ranks[0], SIGKILL), 0);
  EXPECT_EQ(first.wait(), 0) << first.said();
  EXPECT_EQ(second.wait(), 0) << second.said();
  for (const Launcher* launcher : {&first, &second})
    EXPECT_THAT(launcher->said(), HasSubstr("first of all on this machine; restart 1 of 5 in 1 s"));
  Launcher undisturbed(str_cat("--nproc 2 pretrain", kFlags, " --use-distributed-optimizer --save ",
                               folder / "undisturbed"),
                       folder / "log");
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.said();
  expect_same_end(folder / "disturbed", folder / "undisturbed", 300);
}

// Runs to 60 of 300 iterations, damages what was saved last, and starts the same command again.
void expect_passed_over(const std::function<void(const Path& shard)>& damage,
                        const std::string& words) {
  const TempFolder folder;
  const Path saved = folder / "saved";
  const std::string arguments =
      str_cat("--nproc 2 --max-restarts 3 pretrain", kFlags,
              " --save-retain-interval 20 --auto-resume --save ", saved.string());
  Launcher first(arguments + " --exit-interval 60", folder / "log");
  ASSERT_EQ(first.wait(), 0) << first.said();
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint_path(saved, 60)))
    if (entry.path().extension() == ".safetensors") damage(entry.path());
  Launcher second(arguments, folder / "log");
  ASSERT_EQ(second.wait(), 0) << second.said();
  EXPECT_THAT(second.said(), HasSubstr(words));
  Launcher undisturbed(str_cat("--nproc 2 pretrain", kFlags, " --save ", folder / "whole"),
                       folder / "log");
  ASSERT_EQ(undisturbed.wait(), 0) << undisturbed.said();
  expect_same_end(saved, folder / "whole", 300);
}

TEST(Restarts, ACheckpointWhoseFilesAreCutIsPassedOver) {
  expect_passed_over(
      [](const Path& shard) {
        std::filesystem::resize_file(shard, std::filesystem::file_size(shard) / 2);
      },
      "iteration 40");
}

TEST(Restarts, ACheckpointWithAFlippedBitIsPassedOverTheSecondTime) {
  expect_passed_over(
      [](const Path& shard) {
        std::string bytes = read_file(shard);
        bytes[bytes.size() - 100] ^= 1;
        write_file(shard, bytes);
      },
      "falling back to ");
}

TEST(Restarts, AFolderThatLostItsCheckpointsIsNotFilledAnew) {
  const TempFolder folder;
  const Path saved = folder / "saved", gone = folder / "gone";
  const std::string arguments =
      str_cat("--nproc 2 --max-restarts 3 pretrain", kFlags, " --auto-resume --save ",
              saved.string(), " --train-iters 100000 --save-interval 20");
  Launcher first(arguments + " --exit-interval 20", folder / "log");
  ASSERT_EQ(first.wait(), 0) << first.said();
  Launcher launcher(arguments, folder / "log");
  ASSERT_TRUE(comes_to(saved, 40)) << launcher.said();
  // Stopped before, or they would save into a new folder of that name.
  const std::vector<pid_t> ranks = launcher.ranks();
  for (const pid_t rank : ranks) ::kill(rank, SIGSTOP);
  std::filesystem::rename(saved, gone);
  for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  EXPECT_EQ(launcher.wait(), 137) << launcher.said();
  EXPECT_THAT(launcher.said(), HasSubstr("has lost its checkpoints, of which "));
}

TEST(Restarts, GivesUpOnAFailureThatComesBack) {
  const TempFolder folder;
  const Path saved = folder / "saved";
  std::filesystem::create_directories(saved);
  // A tracker without its checkpoint: the run never begins anew in such a folder.
  std::ofstream(saved / "latest_checkpointed_iteration.txt") << "7";
  Launcher launcher(str_cat("--nproc 2 --max-restarts 1 pretrain", kFlags, " --save ",
                            saved.string(), " --load ", saved.string()),
                    folder / "log");
  EXPECT_EQ(launcher.wait(), 1) << launcher.said();
  const std::string said = launcher.said();
  EXPECT_THAT(said, HasSubstr("restart 1 of 1 in 1 s, from the beginning: " + saved.string() +
                              " holds no checkpoint"));
  EXPECT_THAT(said, HasSubstr("--max-restarts 1 gives up: that many restarts in a row"));
  EXPECT_FALSE(std::filesystem::exists(checkpoint_path(saved, 20)));
}

TEST(Restarts, ASignalBetweenTwoStartsEndsTheLauncher) {
  const TempFolder folder;
  const Path saved = folder / "saved";
  std::filesystem::create_directories(saved);
  std::ofstream(saved / "latest_checkpointed_iteration.txt") << "7";
  Launcher launcher(str_cat("--nproc 1 --max-restarts 9 pretrain", kFlags, " --save ",
                            saved.string(), " --load ", saved.string()),
                    folder / "log");
  for (int i = 0; i < 6000 && launcher.said().find("restart 2 of 9") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(::kill(launcher.id(), SIGTERM), 0);
  EXPECT_EQ(launcher.wait(), 3) << launcher.said();
}

TEST(Restarts, GoingBackInTheSameFolderIsRefused) {
  const TempFolder folder;
  const std::string saved = folder / "saved";
  Launcher launcher(str_cat("--nproc 2 --max-restarts 1 pretrain", kFlags, " --save ", saved,
                            " --load ", saved, " --ckpt-step 20"),
                    folder / "log");
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.said(), HasSubstr("--ckpt-step and --auto-resume contradict each other: " +
                                         saved + " is both --load and --save"));
}

TEST(Restarts, NeedAFolderToGoOnFrom) {
  const TempFolder folder;
  Launcher launcher(str_cat("--nproc 2 --max-restarts 1 pretrain",
                            " --num-layers 2 --hidden-size "
                            "32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings "
                            "16 --vocab-size 61 --mock-data --micro-batch-size 1 --train-iters 2 "
                            "--lr 1e-3 --device cpu"),
                    folder / "log");
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.said(), HasSubstr("--max-restarts needs --save"));
  Launcher other("--nproc 1 --max-restarts 1 corpus --output x.jsonl", folder / "log");
  EXPECT_EQ(other.wait(), 2);
  EXPECT_THAT(other.said(), HasSubstr("which corpus does not save"));
}

}  // namespace
}  // namespace phx
