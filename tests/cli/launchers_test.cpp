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

TEST(Launchers, CtrlCAtTheLauncherSavesOnceAndIsAnsweredOnce) {
  const TempFolder folder;
  const Path log = folder / "log", saved = folder / "saved";
  // The launcher itself, not a shell: it is who gets the signal.
  const std::string command =
      str_cat("exec ", PHX_BINARY, " launch --nproc 2 pretrain", kFlags,
              " --train-iters 1000000 --log-interval 1 --save-interval 1000000 --save ",
              saved.string(), " > ", log.string(), " 2>&1");
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  const auto said = [&] { return std::filesystem::exists(log) ? read_file(log) : ""; };
  for (int i = 0; i < 600 && said().find("iteration") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_EQ(::kill(launcher, SIGINT), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status)) << said();
  EXPECT_EQ(WEXITSTATUS(status), 3) << said();
  const std::string text = said(), words =
                                       "caught SIGINT: stopping after this iteration, then "
                                       "saving to " +
                                       saved.string();
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(text.find("caught SIGINT: "), text.rfind("caught SIGINT: ")) << text;
  EXPECT_TRUE(latest_checkpoint(saved)) << text;
}

TEST(Launchers, OneCopyOfTheModelIsTheDefaultWithoutALauncher) {
  const TempFolder folder;
  const std::string pretrain = str_cat(" pretrain", kFlags, kLayout);
  EXPECT_EQ(run(folder, "", pretrain), run(folder, "", pretrain + " --local-ranks 4"));
}

}  // namespace
}  // namespace phx
