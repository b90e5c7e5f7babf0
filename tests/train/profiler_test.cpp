#include "phalanx/train/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "phalanx/base/log.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/trainer.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

RunConfig profiled_run(const Path& folder) {
  RunConfig config = tiny_run();
  config.model.num_layers = 4;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 2;
  config.train.train_iters = 4;
  config.train.profile = true;
  config.train.profile_step_start = 1;
  config.train.profile_step_end = 3;
  config.train.profile_dir = folder / "profile";
  return config;
}

void train_alone(const RunConfig& config) {
  Runtime runtime;
  Session session(config, runtime.device());
  Terminal terminal(stdout, stderr, TerminalMode::silent);
  Trainer(session, terminal, {.catches_signals = false}).run();
}

// What a run of one rank prints and logs.
std::string told_by(const RunConfig& config) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    const auto plain = std::make_shared<Terminal>(stdout, stderr, TerminalMode::plain);
    log_to(plain, LogLevel::info);
    Runtime runtime;
    Session session(config, runtime.device());
    Trainer(session, *plain, {.catches_signals = false}).run();
  }
  log_to(std::make_shared<Terminal>(), LogLevel::info);
  return ::testing::internal::GetCapturedStdout() + ::testing::internal::GetCapturedStderr();
}

void train_on(const RunConfig& config, int ranks) {
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), ranks);
  run_thread_ranks(ranks, {}, [&](World& world) {
    Runtime runtime;
    const Mesh mesh(world, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    Terminal terminal(stdout, stderr, TerminalMode::silent);
    Trainer(session, terminal, {.catches_signals = false}).run();
  });
}

json events_of(const Path& folder) {
  return json::parse(read_file(folder / "profile" / "trace.json"));
}

// How often events of a name begin on a lane.
int count(const json& events, const std::string& name, int thread) {
  int n = 0;
  for (const json& event : events)
    n += event.at("name") == name && event.value("tid", -1) == thread && event.at("ph") == "X";
  return n;
}

TEST(Profiler, TheTraceHoldsTheIterationsOfTheWindow) {
  const TempFolder folder;
  train_alone(profiled_run(folder.path()));
  const json events = events_of(folder.path());
  constexpr int kHost = 0, kCompute = 1;
  EXPECT_EQ(count(events, "update", kCompute), 2);
  EXPECT_EQ(count(events, "update", kHost), 2);
  EXPECT_EQ(count(events, "forward 0", kCompute), 2);
  EXPECT_EQ(count(events, "backward 1", kCompute), 2);
  EXPECT_EQ(count(events, "attention", kCompute), 2 * 2 * 4);  // iterations, micro-batches, layers
  EXPECT_EQ(count(events, "attention_backward", kCompute), 2 * 2 * 4);
}

TEST(Profiler, KernelsLieWithinTheirPhases) {
  const TempFolder folder;
  train_alone(profiled_run(folder.path()));
  const json events = events_of(folder.path());
  std::vector<std::pair<double, double>> backwards;
  for (const json& event : events)
    if (event.at("name").get<std::string>().starts_with("backward ") && event.at("tid") == 1)
      backwards.emplace_back(event.at("ts"),
                             event.at("ts").get<double>() + event.at("dur").get<double>());
  ASSERT_EQ(backwards.size(), 4u);
  for (const json& event : events) {
    if (event.at("name") != "attention_backward") continue;
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    int around = 0;
    for (const auto& [from, to] : backwards) around += from <= begin && end <= to;
    EXPECT_EQ(around, 1) << event;
    EXPECT_GT(event.at("args").at("GFLOP"), 0.);
  }
}

TEST(Profiler, RanksAreBesideEachOtherInOneFile) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  config.parallel.pipeline_model_parallel_size = 2;
  train_on(config, 2);
  const json events = events_of(folder.path());
  std::set<int> ranks;
  std::map<std::string, std::set<int>> ranks_with;
  for (const json& event : events) {
    ranks.insert(event.at("pid").get<int>());
    ranks_with[event.at("name")].insert(event.at("pid").get<int>());
    if (event.at("ph") == "X") EXPECT_GE(event.at("ts").get<double>(), 0.);
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
  EXPECT_EQ(ranks_with["forward 1"], (std::set<int>{0, 1}));
  EXPECT_EQ(ranks_with["lm_loss_chunk"].size() + ranks_with["cross_entropy_with_gradient"].size(),
            1u);  // the last stage alone has a loss
  int sends = 0;
  for (const auto& [name, where] : ranks_with) sends += name.starts_with("send ");
  EXPECT_GT(sends, 0);
}

TEST(Profiler, OnlyTheRanksThatWereNamedAreProfiled) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  config.parallel.pipeline_model_parallel_size = 2;
  config.train.profile_ranks = {1};
  train_on(config, 2);
  for (const json& event : events_of(folder.path())) EXPECT_EQ(event.at("pid"), 1);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "profile" / "rank_00000.json"));
}

TEST(Profiler, ARunThatEndsWithinTheWindowStillWritesIt) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  config.train.profile_step_start = 3;
  config.train.profile_step_end = 9;
  train_alone(config);
  EXPECT_EQ(count(events_of(folder.path()), "update", 1), 1);
}

TEST(Profiler, ItIsToldWhereThePictureIs) {
  const TempFolder folder;
  EXPECT_THAT(told_by(profiled_run(folder.path())),
              HasSubstr("profile of iterations 2 to 3: " +
                        (folder.path() / "profile" / "trace.json").string()));
}

TEST(Profiler, AWindowBehindTheEndOfTheRunIsTold) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  config.train.profile_step_start = 4;
  config.train.profile_step_end = 6;
  const std::string told = told_by(config);
  EXPECT_THAT(told, HasSubstr("--profile: nothing was profiled: the run ended after iteration 4, "
                              "and iterations 5 to 6 were asked for"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "profile"));
}

TEST(Profiler, AFolderThatCannotBeMadeDoesNotEndTheRun) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  write_file(folder.path() / "profile", "a file, not a folder");
  const std::string told = told_by(config);
  EXPECT_THAT(told, HasSubstr("warning: --profile: "));
  EXPECT_THAT(told, Not(HasSubstr("profile of iterations")));
  EXPECT_EQ(read_file(folder.path() / "profile"), "a file, not a folder");
}

TEST(Profiler, ARankThatIsNotThereIsRefused) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  config.train.profile_ranks = {1};
  EXPECT_THAT(
      [&] { train_alone(config); },
      ThrowsMessage<Error>(HasSubstr("--profile-ranks 1 is no rank of this run: there are 1")));
}

TEST(Profiler, AProfileChangesNoBit) {
  const TempFolder folder;
  RunConfig config = profiled_run(folder.path());
  const auto trained = [](const RunConfig& of) {
    Runtime runtime;
    Session session(of, runtime.device());
    Terminal terminal(stdout, stderr, TerminalMode::silent);
    Trainer(session, terminal, {.catches_signals = false}).run();
    return state_bytes(session);
  };
  const auto with = trained(config);
  config.train.profile = false;
  EXPECT_EQ(with, trained(config));
}

}  // namespace
}  // namespace phx
