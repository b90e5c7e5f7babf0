#include "phalanx/train/resume_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "phalanx/base/error.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// What is thrown; empty if nothing is.
std::string problem_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// What compare_options says of a run with the options `now` after one with `before`.
std::string said(const std::string& before, const std::string& now, bool weights_only = false,
                 const std::function<void(RunConfig&)>& change = {}) {
  RunConfig config = tiny_run();
  config.json = now;
  if (change) change(config);
  return problem_of([&] {
    compare_options({"the file", {{"options", before}}}, config, weights_only);
  });
}

TEST(ResumeChecks, AnotherModelIsAnErrorWithBothValues) {
  EXPECT_THAT(said("{\"hidden_size\": 32}", "{\"hidden_size\": 64}"),
              AllOf(HasSubstr("the file was made with other options"),
                    HasSubstr("--hidden-size: 32 in the checkpoint, 64 now"),
                    HasSubstr("--use-checkpoint-args")));
}

TEST(ResumeChecks, WhatDoesNotChangeTheFunctionMayDiffer) {
  EXPECT_THAT(said("{\"seq_length\": 32, \"attention_dropout\": 0}",
                   "{\"seq_length\": 64, \"attention_dropout\": 0.1}"),
              IsEmpty());
}

TEST(ResumeChecks, AnotherScheduleIsAnErrorUnlessItIsWanted) {
  const char *before = "{\"lr\": 0.1}", *now = "{\"lr\": 0.2}";
  EXPECT_THAT(said(before, now), AllOf(HasSubstr("--lr: 0.1 in the checkpoint, 0.2 now"),
                                       HasSubstr("--override-opt-param-scheduler")));
  EXPECT_THAT(said(before, now, /*weights_only=*/true), IsEmpty());
  EXPECT_THAT(said(before, now, false,
                   [](RunConfig& config) { config.optim.override_opt_param_scheduler = true; }),
              IsEmpty());
}

TEST(ResumeChecks, OptionsOfOlderCheckpointsAreReadInTodaysWords) {
  const auto gelu = [](RunConfig& config) {
    config.model.swiglu = false;
    config.model.add_bias_linear = true;
  };
  EXPECT_THAT(said("{}", "{\"bias_gelu_fusion\": true}", false, gelu),
              HasSubstr("--bias-gelu-fusion: false in the checkpoint, true now"));
  EXPECT_THAT(said("{}", "{\"bias_gelu_fusion\": true}"), IsEmpty()) << "of SwiGLU it says nothing";
}

TEST(ResumeChecks, AnotherSeedIsAnErrorUnlessItIsWanted) {
  const SavedRun saved{"the file", {{"rng", "{\"seed\": 5}"}}};
  TrainConfig train;
  train.seed = 5;
  EXPECT_THAT(problem_of([&] { compare_seed(saved, train); }), IsEmpty());
  train.seed = 6;
  EXPECT_THAT(problem_of([&] { compare_seed(saved, train); }),
              HasSubstr("the file was made with --seed 5, and --seed 6 is given now"));
  train.load_rng = false;
  EXPECT_THAT(problem_of([&] { compare_seed(saved, train); }), IsEmpty());
}

TEST(ResumeChecks, SchedulesThatCountOtherSamplesAreAnError) {
  RunConfig config = tiny_run();
  config.optim.lr_decay_style = "cosine";
  config.optim.lr_warmup_iters = 2;
  Runtime runtime;
  const Session session(config, runtime.device());  // 20 iterations of 6 samples
  const auto check = [&](const char* lengths) {
    return problem_of([&] { compare_schedule({"the file", {{"schedule", lengths}}}, session); });
  };
  EXPECT_THAT(check("{\"warm-up\": 12, \"decay\": 120, \"weight decay\": 7}"), IsEmpty());
  EXPECT_THAT(check("{\"warm-up\": 12, \"decay\": 240}"),
              AllOf(HasSubstr("decay: 240 samples in the checkpoint, 120 now"),
                    Not(HasSubstr("warm-up:"))));
}

}  // namespace
}  // namespace phx
