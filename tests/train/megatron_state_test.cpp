#include "phalanx/train/megatron_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/torch_fixture.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST(MegatronState, CountersGoOnWhereMegatronStood) {
  const MegatronModel model(torch_fixture("torch_dist"));
  const auto state = megatron_run_state(model.common_json);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->iteration, 30);
  EXPECT_EQ(state->consumed_samples, 240);
  EXPECT_EQ(state->scheduled_samples, 232);
  EXPECT_EQ(state->updates, 29);
  EXPECT_EQ(state->consumed_valid_samples, 16);
  EXPECT_FALSE(megatron_run_state("{}"));
}

TEST(MegatronState, ALossScaleIsTakenOnlyIfThereIsOne) {
  Json common{{"iteration", 7}, {"args", {{"consumed_train_samples", 56}}}};
  EXPECT_FALSE(megatron_run_state(common.dump())->scaler);
  common["optimizer"]["grad_scaler"] = {
      {"scale", 4096.0}, {"growth_tracker", 3}, {"hysteresis_tracker", 1}};
  const auto scaler = megatron_run_state(common.dump())->scaler;
  ASSERT_TRUE(scaler);
  EXPECT_EQ(scaler->scale, 4096);
  EXPECT_EQ(scaler->growth, 3);
  EXPECT_EQ(scaler->hysteresis_left, 1);
}

TEST(MegatronState, ALossScaleWithoutHysteresisHasThatOfTheRun) {
  Json common{{"iteration", 7}, {"args", {{"consumed_train_samples", 56}}}};
  common["optimizer"]["grad_scaler"] = {{"scale", 4096.0}};
  EXPECT_EQ(megatron_run_state(common.dump())->scaler->hysteresis_left, 2);  // the default
  common["args"]["hysteresis"] = 5;
  EXPECT_EQ(megatron_run_state(common.dump())->scaler->hysteresis_left, 5);
}

// Apex's Adam counts no steps of a group whose parameters are on another pipeline stage.
TEST(MegatronState, TheStepIsThatOfTheFirstGroupThatHasOne) {
  Json common{{"iteration", 7}, {"args", {{"consumed_train_samples", 56}}}};
  common["optimizer"]["optimizer"]["param_groups"] = {{{"lr", 1e-3}}, {{"step", 6}}};
  EXPECT_EQ(megatron_run_state(common.dump())->updates, 6);
}

TEST(MegatronState, ArgumentsOfTheRunAreOptionsOfTheModel) {
  const Json options = MegatronModel(torch_fixture("torch_dist"), {}, 22).options();
  EXPECT_EQ(options["hidden_size"], 8);
  EXPECT_EQ(options["position_embedding_type"], "rope");
  EXPECT_EQ(options["add_bias_linear"], false);
  EXPECT_EQ(options["vocab_size"], 22);
  EXPECT_FALSE(options.contains("padded_vocab_size"));
  EXPECT_FALSE(options.contains("data_path"));  // not of the model
}

TEST(MegatronState, OptionsThatMegatronFillsInAreUnsetAgain) {
  MegatronModel model(torch_fixture("torch_dist"));
  Json common = Json::parse(model.common_json);
  common["args"].update({{"global_batch_size", 8},
                         {"train_iters", 100},
                         {"lr_decay_iters", 100},
                         {"weight_decay", 0.1},
                         {"weight_decay_incr_style", "constant"},
                         {"start_weight_decay", 0.1},
                         {"end_weight_decay", 0.2}});
  model.common_json = common.dump();
  Json options = megatron_run_options(model);
  EXPECT_EQ(options.at("global_batch_size"), 8);
  EXPECT_FALSE(options.contains("lr_decay_iters")) << "a decay as long as the run";
  EXPECT_FALSE(options.contains("start_weight_decay"));
  EXPECT_EQ(options.at("end_weight_decay"), 0.2) << "this is another value";
  common["args"]["lr_decay_iters"] = 50;
  common["args"]["train_samples"] = 800;
  model.common_json = common.dump();
  options = megatron_run_options(model);
  EXPECT_EQ(options.at("lr_decay_iters"), 50);
  EXPECT_FALSE(options.contains("train_iters")) << "the run counts samples";
}

// What a run of ours says beside its tensors.
CheckpointInfo info_of(Json options) {
  RunState state;
  state.iteration = 5;
  state.consumed_samples = 40;
  state.scheduled_samples = 32;
  state.consumed_valid_samples = 8;
  state.updates = 4;
  return {{"options", options.dump()},
          {"state", state.to_json()},
          {"schedule", R"({"warm-up": 0, "decay": 80, "weight decay": 80})"}};
}

TEST(MegatronState, WhatIsWrittenForMegatronComesBackAsItWas) {
  const CheckpointInfo info =
      info_of({{"lr", 1e-3}, {"min_lr", 1e-3}, {"norm_epsilon", 1e-6}, {"load", ""}});
  const MegatronCommon made = megatron_common(info, 128, /*optimizer=*/true);
  const Json args = Json::parse(made.args);
  EXPECT_EQ(args.at("padded_vocab_size"), 128);
  EXPECT_EQ(args.at("layernorm_epsilon"), 1e-6) << "the name of 2026";
  EXPECT_FALSE(args.contains("load")) << "an empty text would be taken as a value";
  EXPECT_EQ(args.at("no_save_optim"), false);
  Json common = Json::parse(made.common);
  common["iteration"] = 5;
  common["args"] = args;
  // Tensors of one number are numbers where Megatron's state is read.
  for (Json* step : {&common["optimizer"]["state"]["common_step"],
                     &common["optimizer"]["optimizer"]["state"]["common_step"]})
    *step = step->at("$tensor");
  const auto state = megatron_run_state(common.dump());
  ASSERT_TRUE(state);
  EXPECT_EQ(state->iteration, 5);
  EXPECT_EQ(state->consumed_samples, 40);
  EXPECT_EQ(state->scheduled_samples, 32);
  EXPECT_EQ(state->consumed_valid_samples, 8);
  EXPECT_EQ(state->updates, 4);
}

TEST(MegatronState, GroupsOfParametersHaveTheRatesOfTheirPlaceInTheSchedule) {
  const CheckpointInfo info = info_of({{"lr", 0.5},
                                       {"min_lr", 0.1},
                                       {"lr_decay_style", "linear"},
                                       {"weight_decay", 0.25},
                                       {"decoupled_lr", 1.0}});
  const Json groups =
      Json::parse(megatron_common(info, 128, true).common)["optimizer"]["param_groups"];
  ASSERT_EQ(groups.size(), 4u) << "matrices and the rest, of each of two learning rates";
  // 32 of 80 samples: 0.5 - 0.4 * 0.4.
  EXPECT_NEAR(groups[0].at("lr").get<double>(), 0.34, 1e-12);
  EXPECT_NEAR(groups[0].at("weight_decay").get<double>(), 0.25, 1e-12);
  EXPECT_EQ(groups[1].at("weight_decay"), 0.0) << "vectors do not decay";
  EXPECT_EQ(groups[0].at("default_config"), true);
  EXPECT_EQ(groups[2].at("default_config"), false);
  EXPECT_EQ(groups[2].at("max_lr"), 1.0);
  EXPECT_EQ(groups[0].at("step"), 4);
}

// The run's own number would be taken for the export's by Megatron's --use-checkpoint-args.
TEST(MegatronState, TheArgumentsNameTheRanksThatExpertsWillHave) {
  const CheckpointInfo run = info_of({{"num_experts", 4}, {"expert_model_parallel_size", 2}});
  for (const int64_t ranks : {1, 2, 4}) {
    const MegatronCommon made = megatron_common(run, 128, /*optimizer=*/false, ranks);
    EXPECT_EQ(Json::parse(made.args).at("expert_model_parallel_size"), ranks);
  }
}

TEST(MegatronState, WithoutTheOptimizerNoScheduleIsNeeded) {
  CheckpointInfo info = info_of({{"lr", 1e-3}});
  info.erase("schedule");
  EXPECT_FALSE(Json::parse(megatron_common(info, 128, false).common).contains("optimizer"));
  EXPECT_EQ(error_of([&] { megatron_common(info, 128, true); }),
            "the checkpoint does not say how long its schedules are");
}

}  // namespace
}  // namespace phx
