#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "phalanx/train/trainer.h"
#include "train/faulty_runs.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

// The lines that tell of evaluations, and the loss that the last one on validation data should
// have.
struct Evaluations {
  std::vector<std::string> lines;
  double last = 0;
};

Evaluations evaluations(const RunConfig& config, int64_t before_the_last) {
  const TempFolder folder;
  Runtime runtime({.threads = 2});
  Session session(config, runtime.device());
  std::FILE* file = std::fopen((folder / "log").c_str(), "w");
  Evaluations found;
  {
    Terminal terminal(file, file, TerminalMode::plain);
    Trainer trainer(session, terminal, {.measures_peak = false});
    trainer.run();
    EXPECT_EQ(trainer.state().consumed_valid_samples, (before_the_last + 1) * 6);
  }
  std::fclose(file);
  found.last = session.step.evaluate(*session.valid_batches, before_the_last * 6, 1).value();
  std::ifstream in(folder / "log");
  for (std::string line; std::getline(in, line);)
    if (line.find("validation loss at ") != std::string::npos) found.lines.push_back(line);
  return found;
}

// As Megatron: at every multiple of --eval-interval, the last iteration too, and once more at the
// end, on the next samples; then on the test set.
TEST(TrainerReports, TheLastEvaluationComesAfterTheOneOfItsIteration) {
  RunConfig config = tiny_run();
  config.train.train_iters = 4;
  config.train.eval_iters = 1;
  for (const int64_t interval : {2, 3}) {
    config.train.eval_interval = interval;
    const Evaluations found = evaluations(config, 4 / interval);
    std::vector<std::string> wanted = {"iteration 2 |", "iteration 4 |",
                                       "iteration 4 on validation set |",
                                       "iteration 4 on test set |"};
    if (interval == 3) wanted = {"iteration 3 |", wanted[2], wanted[3]};
    ASSERT_EQ(found.lines.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NE(found.lines[i].find("validation loss at " + wanted[i]), std::string::npos)
          << found.lines[i];
    const std::string value = fmt::format("lm loss value: {:.6E}", found.last);
    EXPECT_NE(found.lines[wanted.size() - 2].find(value), std::string::npos) << value;
    EXPECT_EQ(found.lines[wanted.size() - 3].find(value), std::string::npos) << value;
  }
}

TEST(TrainerReports, EvaluatesOnlyWhenToldTo) {
  RunConfig config = tiny_run();
  config.train.skip_train = true;
  config.train.eval_iters = 2;
  Runtime runtime({.threads = 1});
  Session session(config, runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  Trainer trainer(session, silent, {.catches_signals = false, .measures_peak = false});
  trainer.run();
  EXPECT_EQ(trainer.state().iteration, 0);
  EXPECT_EQ(trainer.state().consumed_valid_samples, 12);
}

TEST(TrainerReports, MetricsAndEventsThatCannotBeWrittenDoNotEndTheRun) {
  const TempFolder folder;
  RunConfig config = saving(folder.path());
  config.train.train_iters = 3;
  make_folder(folder / "logs");
  config.train.metrics_file = (folder / "logs/metrics").string();
  config.train.tensorboard_dir = (folder / "logs/tb").string();
  Runtime runtime({.threads = 1});
  Session session(config, Sources(config), runtime.device());
  Terminal silent(stdout, stderr, TerminalMode::silent);
  Trainer trainer(session, silent, {.catches_signals = false, .measures_peak = false});
  std::filesystem::remove_all(folder / "logs");
  write_file(folder / "logs", "a file where the folder was");
  EXPECT_EQ(trainer.run(), RunEnd::finished);
  EXPECT_EQ(latest_checkpoint(folder.path()), 3);
}

TEST(TrainerReports, AFileWhereEventsShouldGoIsRefusedBeforeTheRun) {
  const TempFolder folder;
  write_file(folder / "tb", "");
  RunConfig config = tiny_run();
  config.train.tensorboard_dir = (folder / "tb").string();
  EXPECT_EQ(error_of([&] { run(config, Sources(config)); }),
            "--tensorboard-dir " + (folder / "tb").string() +
                " is a file, but events go into a folder\n  hint: give another name");
}

TEST(TrainerReports, AMetricsLineHasTheRatesAndCountersOfItsIteration) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.train.train_iters = 3;
  config.train.metrics_file = (folder / "metrics").string();
  run(config, Sources(config));
  std::ifstream lines(folder / "metrics");
  int64_t iteration = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_EQ(json.at("iteration"), ++iteration);
    EXPECT_EQ(json.at("consumed samples"), 6 * iteration);
    EXPECT_GT(json.at("grad norm").get<double>(), 0);
  }
  EXPECT_EQ(iteration, 3);
}

TEST(TrainerReports, LossesOfTokensAheadAreNamedAsMegatronNamesThem) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.train.train_iters = 2;
  config.train.log_interval = 1;
  config.model.mtp_num_layers = 2;
  config.train.metrics_file = (folder / "metrics").string();
  run(config, Sources(config));
  std::ifstream lines(folder / "metrics");
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    // About ln 61, of an untrained model.
    for (const char* name : {"lm loss", "mtp_1 loss", "mtp_2 loss"})
      EXPECT_NEAR(json.at(name).get<double>(), 4.1, 0.3) << name;
    EXPECT_NE(json.at("mtp_1 loss"), json.at("mtp_2 loss"));
  }
  EXPECT_EQ(count, 2);
}

// Two documents in every sample, which do not see each other.
class Halved : public SampleSource {
 public:
  explicit Halved(std::shared_ptr<const SampleSource> source) : source_(std::move(source)) {}
  void sample(int64_t index, Sample& out) const override {
    source_->sample(index, out);
    const auto s = int32_t(out.tokens.size());
    out.positions.resize(out.tokens.size());
    for (int32_t i = 0; i < s; ++i) out.positions[size_t(i)] = i % (s / 2);
    out.cu_seqlens = {0, s / 2, s};
  }
  SampleParts parts() const override { return {.positions = true, .cu_seqlens = true}; }
  std::string description() const override { return source_->description(); }

 private:
  std::shared_ptr<const SampleSource> source_;
};

// TFLOP/s over tokens per second, so that no time is in it.
double flops_of_a_token(const RunConfig& of, bool halved) {
  const TempFolder folder;
  RunConfig config = of;
  config.train.train_iters = 2;
  config.train.metrics_file = (folder / "metrics").string();
  Sources sources(config);
  if (halved) sources.train = sources.valid = std::make_shared<Halved>(sources.train);
  run(config, sources);
  std::ifstream lines(folder / "metrics");
  std::string line;
  while (std::getline(lines, line) && lines.peek() != EOF) continue;
  const auto json = nlohmann::json::parse(line);
  return json.at("throughput").get<double>() * 1e12 / json.at("tokens per second").get<double>();
}

TEST(TrainerReports, PackedDocumentsCostEachTheSquareOfItsOwnLength) {
  const RunConfig config = tiny_run();  // samples of 24 tokens
  const FlopsShape shape = flops_shape(config.model);
  const double whole = training_flops(shape, 24, 24 * 24) / 24;
  const double halves = training_flops(shape, 24, 2 * 12 * 12) / 24;
  EXPECT_GT(whole - halves, 1e-3 * whole);
  EXPECT_NEAR(flops_of_a_token(config, false), whole, 1e-9 * whole);
  EXPECT_NEAR(flops_of_a_token(config, true), halves, 1e-9 * halves);
}

}  // namespace
}  // namespace phx
