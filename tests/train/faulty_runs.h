// Runs that end badly, for tests: data that cannot be read or computed with, on one rank or two.
#pragma once

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/compare.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/trainer.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx::testing {

// Samples that cannot be read from this one on.
class Failing : public SampleSource {
 public:
  Failing(std::shared_ptr<const SampleSource> source, int64_t from)
      : source_(std::move(source)), from_(from) {}
  void sample(int64_t index, Sample& out) const override {
    PHX_CHECK(index < from_, "sample ", index, " is gone");
    source_->sample(index, out);
  }
  SampleParts parts() const override { return source_->parts(); }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t from_;
};

// Samples of which one takes so long that the user presses Ctrl-C twice.
class Interrupted : public SampleSource {
 public:
  Interrupted(std::shared_ptr<const SampleSource> source, int64_t at)
      : source_(std::move(source)), at_(at) {}
  void sample(int64_t index, Sample& out) const override {
    if (index == at_)
      for (int i = 0; i < 2; ++i) std::raise(SIGINT);
    source_->sample(index, out);
  }
  SampleParts parts() const override { return source_->parts(); }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t at_;
};

// Samples that can be read, but not computed with from this one on: their positions are in no
// table.
class Displaced : public SampleSource {
 public:
  Displaced(std::shared_ptr<const SampleSource> source, int64_t from)
      : source_(std::move(source)), from_(from) {}
  void sample(int64_t index, Sample& out) const override {
    source_->sample(index, out);
    out.positions.resize(out.tokens.size());
    std::iota(out.positions.begin(), out.positions.end(), index < from_ ? 0 : 1000);
  }
  SampleParts parts() const override { return {.positions = true}; }
  std::optional<int64_t> num_samples() const override { return source_->num_samples(); }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
  int64_t from_;
};

inline void run(const RunConfig& config, const Sources& sources,
                const TrainerOptions& options = {}) {
  Runtime runtime({.threads = 1});
  Session session(config, sources, runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  TrainerOptions own = options;
  own.measures_peak = own.catches_signals = false;
  Trainer(session, silent, own).run();
}

inline RunConfig saving(const Path& folder) {
  RunConfig config = tiny_run();  // six samples an iteration
  config.train.save = folder;
  return config;
}

// The same weights and moments as a run that was told to stop there.
inline void expect_state_after(const RunConfig& config, const Path& folder, int64_t iteration) {
  const TempFolder clean;
  RunConfig other = config;
  other.train.save = clean.path();
  other.train.exit_interval = iteration;
  run(other, Sources(other));
  EXPECT_EQ(latest_checkpoint(folder), iteration);
  const NativeCheckpoint a(checkpoint_path(folder, iteration)),
      b(checkpoint_path(clean.path(), iteration));
  EXPECT_TRUE(differences(a, b).empty());
}

// Two ranks, each with sources of its own.
inline void run_two(RunConfig config,
                    const std::function<void(int rank, Sources& sources)>& change) {
  const Layout layout = make_layout(config.layout(), 2);
  run_thread_ranks(2, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(world, layout.mesh);
    Sources sources(config);
    change(world.rank(), sources);
    Session session(config, sources, runtime.device(), mesh);
    Terminal silent(stdout, stderr, TerminalMode::silent);
    Trainer(session, silent,
            {.catches_signals = false,
             .measures_peak = false,
             .world = &world,
             .parts_patience = std::chrono::seconds(10)})
        .run();
  });
}

inline RunConfig two_ranks(const Path& folder) {
  RunConfig config = saving(folder);
  config.model.attention_dropout = config.model.hidden_dropout = 0;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 6;
  return config;
}

}  // namespace phx::testing
