// A run of Megatron-LM itself on masked data, without --calculate-per-token-loss: its losses, and
// which evaluations it prints. tests/data/megatron/llama_tp2_dp/masked.json holds what it said:
//
//   scripts/megatron_on_cpu.py --megatron DIR --losses FILE -- FLAGS OF run.json AND masked.json
//       --data-path tests/data/megatron/tokens --load tests/data/megatron/llama_tp2_dp
//
// (two data-parallel ranks of it gave the same losses to 2.4e-7).
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "cli/captured.h"
#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/json.h"
#include "phalanx/report/metrics.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

const Path kFolder = Path(PHX_TEST_DATA) / "megatron";

nlohmann::json read(const char* name) {
  return parse_json(read_file(kFolder / "llama_tp2_dp" / name));
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::pair<std::string, double>> validation;  // "iteration 4", loss
};

Trained train(const std::string& more) {
  const TempFolder out;
  std::istringstream text("pretrain " + read("run.json").at("flags").get<std::string>() + " " +
                          read("masked.json").at("flags").get<std::string>() +
                          " --tokenizer-type NullTokenizer --device cpu --threads 1 " + more);
  std::vector<std::string> args(std::istream_iterator<std::string>(text), {});
  for (const auto& [flag, path] : {std::pair<std::string, Path>{"--data-path", kFolder / "tokens"},
                                   {"--load", kFolder / "llama_tp2_dp"},
                                   {"--data-cache-path", out / "cache"},
                                   {"--metrics-file", out / "metrics"}})
    args.insert(args.end(), {flag, path.string()});
  const testing::Outcome outcome = testing::run(args);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  Trained run;
  for (const auto& [iteration, loss] : read_losses(out / "metrics").train)
    run.losses.push_back(loss);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string begin = "validation loss at ", middle = " | lm loss value: ";
    const size_t at = line.find(begin), value = line.find(middle);
    if (at == std::string::npos || value == std::string::npos) continue;
    run.validation.emplace_back(line.substr(at + begin.size(), value - at - begin.size()),
                                std::stod(line.substr(value + middle.size())));
  }
  return run;
}

double largest_difference(const std::vector<double>& ours) {
  const auto theirs = read("masked.json").at("losses").get<std::vector<double>>();
  EXPECT_EQ(ours.size(), theirs.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    largest = std::max(largest, std::abs(ours[i] - theirs[i]));
  return largest;
}

// fp32: sums of numbers near 3 in other orders differ in the last place, 2.4e-7, and twelve updates
// carry that on.
constexpr double kRounding = 2e-6;

TEST(MaskedMegatronRun, AveragesOverMicroBatchesGiveItsCurve) {
  EXPECT_LT(largest_difference(train("--loss-average micro-batch").losses), kRounding);
  EXPECT_GT(largest_difference(train("--loss-average token").losses), 1e-3);
}

TEST(MaskedMegatronRun, AveragesOverMicroBatchesGiveItsCurveOnEveryLayout) {
  for (const char* layout :
       {"--local-ranks 2", "--local-ranks 4 --tensor-model-parallel-size 2 --sequence-parallel"})
    EXPECT_LT(largest_difference(train(str_cat("--loss-average micro-batch ", layout)).losses),
              kRounding)
        << layout;
}

// At multiples of the interval, once more at the end on the next samples, then on the test set.
TEST(MaskedMegatronRun, EvaluatesWhenMegatronDoes) {
  const Trained run = train("--loss-average micro-batch");
  const nlohmann::json theirs = read("masked.json").at("validation");
  ASSERT_EQ(run.validation.size(), theirs.size());
  for (size_t i = 0; i < theirs.size(); ++i) {
    EXPECT_EQ(run.validation[i].first, theirs[i][0].get<std::string>());
    EXPECT_NEAR(run.validation[i].second, theirs[i][1].get<double>(), kRounding);
  }
}

}  // namespace
}  // namespace phx
