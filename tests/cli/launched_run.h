// A run under `phalanx launch` whose ranks a test kills, and what it left.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"

namespace phx::testing {

inline constexpr const char* kSmallRun =
    " --num-layers 2 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 48 --swiglu"
    " --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --seq-length 16"
    " --max-position-embeddings 16 --vocab-size 61 --mock-data --micro-batch-size 1"
    " --global-batch-size 4 --lr 1e-3 --log-interval 100 --device cpu --threads 1"
    " --save-interval 20 --save-retain-interval 1000";

// A launcher as a process of its own, without a shell between: signals go to it.
class Launcher {
 public:
  Launcher(const std::string& arguments, const Path& log) : log_(log) {
    const std::string command =
        str_cat("exec ", PHX_BINARY, " launch ", arguments, " > ", log.string(), " 2>&1");
    id_ = ::fork();
    if (id_ == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
  }
  ~Launcher() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }

  pid_t id() const { return id_; }
  std::string said() const { return std::filesystem::exists(log_) ? read_file(log_) : ""; }
  // In the order of their numbers.
  std::vector<pid_t> ranks() const {
    std::ifstream in(str_cat("/proc/", id_, "/task/", id_, "/children"));
    std::vector<pid_t> result;
    for (pid_t rank = 0; in >> rank;) result.push_back(rank);
    return result;
  }
  int wait() {
    int status = 0;
    ::waitpid(std::exchange(id_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  Path log_;
  pid_t id_ = 0;
};

inline bool comes_to(const Path& saved, int64_t iteration) {
  for (int i = 0; i < 6000; ++i) {
    if (latest_checkpoint(saved).value_or(0) >= iteration) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

inline std::vector<std::byte> bytes_of(const NativeCheckpoint& checkpoint,
                                       const std::string& name) {
  const TensorInfo& info = checkpoint.tensors().at(name);
  const Box all = whole_box(info.shape);
  std::vector<std::byte> bytes(size_t(all.numel() * size_of(info.dtype)));
  checkpoint.read(name, all, bytes);
  return bytes;
}

inline void expect_same_end(const Path& disturbed, const Path& undisturbed, int64_t iteration) {
  const NativeCheckpoint a(checkpoint_path(disturbed, iteration)),
      b(checkpoint_path(undisturbed, iteration));
  EXPECT_EQ(a.info("state"), b.info("state"));
  ASSERT_EQ(a.tensors(), b.tensors());
  for (const auto& [name, info] : b.tensors())
    EXPECT_EQ(bytes_of(a, name), bytes_of(b, name)) << name;
}

}  // namespace phx::testing
