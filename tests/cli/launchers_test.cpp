// The same run however its ranks are started: threads of one process, processes of `phalanx
// launch`, and mpirun. They share one reduction, so losses agree to the last bit.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

const char* const kFlags =
    " --num-layers 4 --hidden-size 32 --num-attention-heads 4 --group-query-attention"
    " --num-query-groups 2 --ffn-hidden-size 48 --swiglu --normalization RMSNorm"
    " --disable-bias-linear --position-embedding-type rope --seq-length 16"
    " --max-position-embeddings 16 --vocab-size 61 --mock-data --micro-batch-size 1"
    " --global-batch-size 4 --train-iters 4 --lr 1e-3 --log-interval 4 --device cpu --threads 1";
const char* const kLayout =
    " --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2";

struct Losses {
  std::vector<double> losses, norms;
  bool operator==(const Losses&) const = default;
};

// Runs `command` with a metrics file, and reads that.
Losses run(const TempFolder& folder, const std::string& before, const std::string& flags) {
  const auto metrics = folder.path() / "metrics.jsonl";
  std::filesystem::remove(metrics);
  const std::string command = str_cat(before, " ", PHX_BINARY, flags, " --metrics-file ",
                                      metrics.string(), " > ", folder.path().string(), "/log 2>&1");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  Losses result;
  std::ifstream in(metrics);
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    result.losses.push_back(row.at("lm loss"));
    result.norms.push_back(row.at("grad norm"));
  }
  return result;
}

TEST(Launchers, ThreadsLaunchedProcessesAndMpirunGiveTheSameBits) {
  const TempFolder folder;
  const std::string pretrain = str_cat(" pretrain", kFlags, kLayout);
  const Losses threads = run(folder, "", pretrain + " --local-ranks 4");
  ASSERT_EQ(threads.losses.size(), 4u);
  EXPECT_EQ(run(folder, "", " launch --nproc 4" + pretrain), threads);
  EXPECT_EQ(run(folder, "mpirun --allow-run-as-root --oversubscribe -np 4", pretrain), threads);
}

TEST(Launchers, RanksThatDoNotFitIntoTheMachineAreRefusedWithAllOtherProblems) {
  const TempFolder folder;
  const auto log = folder.path() / "log";
  const int status = std::system(str_cat(PHX_BINARY, " pretrain", kFlags, " --hidden-size 66",
                                         " --global-batch-size 1000000 --local-ranks 1000000",
                                         " > ", log.string(), " 2>&1")
                                     .c_str());
  EXPECT_EQ(WEXITSTATUS(status), 2);
  std::stringstream said;
  said << std::ifstream(log).rdbuf();
  EXPECT_NE(said.str().find("error: --local-ranks 1000000: that many ranks "), std::string::npos)
      << said.str();
  EXPECT_NE(said.str().find("hint: at most "), std::string::npos) << said.str();
  EXPECT_NE(said.str().find("error: --hidden-size 66 is not a multiple of "), std::string::npos)
      << said.str();
}

// `phalanx launch` of two ranks with long iterations, which only a signal ends. As a shell's job it
// has a process group of its own.
class LaunchedRun {
 public:
  LaunchedRun() {
    // The launcher itself, not a shell: it is who gets the signal.
    const std::string command =
        str_cat("exec ", PHX_BINARY, " launch --nproc 2 pretrain", kFlags,
                " --train-iters 1000 --global-batch-size 1500 --log-interval 1",
                " --save-interval 1000 --save ", saved().string(), " > ",
                (folder_ / "log").string(), " 2>&1");
    launcher_ = ::fork();
    if (launcher_ == 0) {
      ::setpgid(0, 0);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::setpgid(launcher_, launcher_);
  }
  ~LaunchedRun() {
    if (launcher_ <= 0) return;
    ::kill(launcher_, SIGKILL);
    ::waitpid(launcher_, nullptr, 0);
  }
  LaunchedRun(const LaunchedRun&) = delete;
  LaunchedRun& operator=(const LaunchedRun&) = delete;

  Path saved() const { return folder_ / "saved"; }
  std::string said() const {
    const Path log = folder_ / "log";
    return std::filesystem::exists(log) ? read_file(log) : "";
  }
  int times(const std::string& words) const {
    const std::string text = said();
    int count = 0;
    for (size_t at = 0; (at = text.find(words, at)) != text.npos; at += words.size()) ++count;
    return count;
  }
  bool has_said(const std::string& words) const {  // within a minute
    for (int i = 0; i < 6000 && times(words) == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return times(words) > 0;
  }
  void signal(int signal, bool group) const {
    ASSERT_EQ(::kill(group ? -launcher_ : launcher_, signal), 0);
  }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(::waitpid(launcher_, &status, 0), launcher_);
    launcher_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  TempFolder folder_;
  pid_t launcher_ = 0;
};

// By `kill` the launcher alone gets the signal. A terminal sends it to the launcher's whole process
// group, in which the ranks are not: they get it once, too.
class CtrlC : public ::testing::TestWithParam<bool> {
 protected:
  void send() { run_.signal(SIGINT, GetParam()); }
  LaunchedRun run_;
};

TEST_P(CtrlC, SavesOnceAndIsAnsweredOnce) {
  ASSERT_TRUE(run_.has_said("iteration        1/")) << run_.said();
  send();
  EXPECT_EQ(run_.exit_code(), 3) << run_.said();
  EXPECT_EQ(run_.times("caught SIGINT: stopping after this iteration, then saving to " +
                       run_.saved().string()),
            1)
      << run_.said();
  EXPECT_EQ(run_.times("] caught SIGINT"), 1) << run_.said();
  EXPECT_TRUE(latest_checkpoint(run_.saved())) << run_.said();
}

TEST_P(CtrlC, ASecondOneIsAnsweredOnceAndTheRunStillSaves) {
  ASSERT_TRUE(run_.has_said("iteration        1/")) << run_.said();
  send();
  ASSERT_TRUE(run_.has_said("caught SIGINT: ")) << run_.said();
  send();
  EXPECT_EQ(run_.exit_code(), 3) << run_.said();
  EXPECT_EQ(run_.times("caught SIGINT again: still stopping after this iteration"), 1)
      << run_.said();
  EXPECT_EQ(run_.times("] caught SIGINT"), 2) << run_.said();
  EXPECT_TRUE(latest_checkpoint(run_.saved())) << run_.said();
}

// The rank that ends saves nothing. One that was slow to count the signals may see it die first,
// and save the last good state, as after any death.
TEST_P(CtrlC, AThirdOneEndsTheRanksAtOnce) {
  ASSERT_TRUE(run_.has_said("iteration        1/")) << run_.said();
  send();
  ASSERT_TRUE(run_.has_said("caught SIGINT: ")) << run_.said();
  send();
  ASSERT_TRUE(run_.has_said("caught SIGINT again: ")) << run_.said();
  send();
  EXPECT_EQ(run_.exit_code(), 128 + SIGINT) << run_.said();
  EXPECT_EQ(run_.times("was killed by signal 2 "), 1) << run_.said();
  EXPECT_EQ(run_.times("iteration        2/"), 0) << run_.said();
}

INSTANTIATE_TEST_SUITE_P(Launchers, CtrlC, ::testing::Bool(), [](const auto& info) {
  return info.param ? "ToTheProcessGroup" : "ToTheLauncher";
});

TEST(Launchers, OneCopyOfTheModelIsTheDefaultWithoutALauncher) {
  const TempFolder folder;
  const std::string pretrain = str_cat(" pretrain", kFlags, kLayout);
  EXPECT_EQ(run(folder, "", pretrain), run(folder, "", pretrain + " --local-ranks 4"));
}

}  // namespace
}  // namespace phx
