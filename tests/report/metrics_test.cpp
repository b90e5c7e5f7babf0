#include "phalanx/report/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "phalanx/base/error.h"
#include "phalanx/base/json_lines.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using Points = std::vector<std::pair<double, double>>;

IterationReport report_of(int64_t iteration, double loss) {
  return {.iteration = iteration, .losses = {{"lm loss", loss}}};
}

TEST(Metrics, ALineIsThereAtOnce) {
  const TempFolder folder;
  MetricsFile file(folder / "metrics.jsonl", 0);
  file.write(IterationReport{.iteration = 3,
                             .consumed_samples = 12,
                             .milliseconds = 1.5,
                             .learning_rate = 0.25,
                             .global_batch_size = 4,
                             .losses = {{"lm loss", 2.5}},
                             .grad_norm = 0.5});
  EXPECT_EQ(read_file(folder / "metrics.jsonl"),
            "{\"iteration\":3,\"consumed samples\":12,\"elapsed ms\":1.5,\"learning rate\":0.25,"
            "\"global batch size\":4,\"lm loss\":2.5,\"loss scale\":1.0,\"grad norm\":0.5,"
            "\"skipped iterations\":0,\"nan iterations\":0}\n");
}

const RouterReport kRouters = {.most = 1.5,
                               .fewest = 0.5,
                               .entropy = 0.25,
                               .dropped = 0.125,
                               .losses = {{"load_balancing_loss", 1.25}}};

TEST(Metrics, RoutersAreWrittenTogetherAndLayerByLayer) {
  const TempFolder folder;
  MetricsFile file(folder / "m", 0);
  IterationReport report = report_of(3, 2.5);
  report.routers = kRouters;
  report.router_layers = {{2, kRouters}};
  report.router_layers[0].second.loads = {1.5, 0.5};
  file.write(report);
  const auto line = nlohmann::json::parse(read_file(folder / "m"));
  nlohmann::json expected = {{"load_balancing_loss", 1.25},
                             {"most rows", 1.5},
                             {"fewest rows", 0.5},
                             {"entropy", 0.25},
                             {"dropped", 0.125}};
  EXPECT_EQ(line.at("routers"), expected);
  expected["loads"] = {1.5, 0.5};
  EXPECT_EQ(line.at("router layers"), (nlohmann::json{{"2", expected}}));
}

TEST(Metrics, LoadsOfExpertsAreReadBack) {
  const TempFolder folder;
  MetricsFile file(folder / "m", 0);
  for (const int64_t iteration : {10, 20}) {
    IterationReport report = report_of(iteration, 1.);
    report.router_layers = {{0, kRouters}, {2, kRouters}};  // one without loads
    report.router_layers[1].second.loads = {1.5, iteration / 40.};
    file.write(report);
    file.write(ValidationReport{.iteration = iteration, .losses = {{"lm loss", 1.}}});
  }
  EXPECT_EQ(read_expert_loads(folder / "m", 2), (ExpertLoads{{10, {1.5, 0.25}}, {20, {1.5, 0.5}}}));
  for (const int64_t layer : {0, 1})
    EXPECT_THAT(error_of([&] { read_expert_loads(folder / "m", layer); }),
                HasSubstr(str_cat("no line has loads of experts in layer ", layer,
                                  "\n  hint: --moe-per-layer-logging writes them")));
  AppendFile(folder / "m").write("{\"iteration\":30,\"router layers\":{\"2\":{\"loads\":[1]}}}\n");
  EXPECT_THAT(error_of([&] { read_expert_loads(folder / "m", 2); }),
              HasSubstr(":5: 1 experts in layer 2, but 2 in the lines before"));
}

TEST(Metrics, LossesAreReadBack) {
  const TempFolder folder;
  MetricsFile file(folder / "m", 0);
  file.write(report_of(1, 3.));
  file.write(report_of(2, std::numeric_limits<double>::quiet_NaN()));
  file.write(report_of(3, 2.));
  file.write(ValidationReport{.iteration = 3, .losses = {{"lm loss", 2.25}}});
  file.write(ValidationReport{.iteration = 3, .losses = {{"lm loss", 9.}}, .where = "on test set"});
  const LossHistory history = read_losses(folder / "m");
  EXPECT_EQ(history.train, (Points{{1, 3.}, {3, 2.}}));
  EXPECT_EQ(history.validation, (Points{{3, 2.25}}));
  EXPECT_THAT(error_of([&] { read_losses(folder / "m", "z_loss"); }),
              HasSubstr("no line has a number \"z_loss\""));
}

TEST(Metrics, AResumedRunTakesOutWhatItWillWriteAgain) {
  const TempFolder folder;
  {
    MetricsFile file(folder / "m", 0);
    for (int i = 1; i <= 5; ++i) file.write(report_of(i, 10. - i));
  }
  AppendFile(folder / "m").write("{\"iteration\":6,\"lm lo");  // stopped in a line
  MetricsFile file(folder / "m", 3);
  file.write(report_of(4, 0.5));
  EXPECT_EQ(read_losses(folder / "m").train, (Points{{1, 9.}, {2, 8.}, {3, 7.}, {4, 0.5}}));
}

TEST(Metrics, ANewRunStartsANewFile) {
  const TempFolder folder;
  write_file(folder / "m", "{\"iteration\":1,\"lm loss\":1}\n");
  MetricsFile file(folder / "m", 0);
  EXPECT_EQ(read_file(folder / "m"), "");
  MetricsFile missing(folder / "other", 5);
  EXPECT_EQ(read_file(folder / "other"), "");
}

TEST(Metrics, AFolderIsRefusedAndKeepsItsName) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "runs");
  for (const int64_t iteration : {0, 5})
    EXPECT_THAT(error_of([&] { MetricsFile(folder / "runs", iteration); }),
                HasSubstr("/runs is a folder, but lines are appended to a file"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "runs"));
  EXPECT_FALSE(std::filesystem::exists(folder / "runs.old"));
}

}  // namespace
}  // namespace phx
