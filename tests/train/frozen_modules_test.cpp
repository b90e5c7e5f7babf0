#include "phalanx/train/frozen_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::HasSubstr;

using Modules = std::vector<std::string>;

TEST(FrozenModules, AModuleIsAPartOfTheNameFromDotToDot) {
  const std::string name = "decoder.layers.12.mlp.linear_fc1.weight";
  for (const char* module :
       {"decoder", "layers", "mlp", "decoder.layers.12", "12", "mlp.linear_fc1",
        "linear_fc1.weight", "linear_fc*", "*.mlp", "layers.*.mlp", "1*"})
    EXPECT_TRUE(is_frozen({module}, name)) << module;
  for (const char* module : {"decoder.layers.1", "layers.2", "ml", "linear", "mlp.weight", "fc1",
                             "layers.*.weight", "decoder.layers.12.mlp.linear_fc1.weight.x"})
    EXPECT_FALSE(is_frozen({module}, name)) << module;
  EXPECT_FALSE(is_frozen({}, name));
  EXPECT_TRUE(is_frozen({"embedding", "mlp"}, name));
}

TEST(FrozenModules, WhatTheModelDoesNotHaveIsNamed) {
  const RunConfig run = tiny_run();
  const auto problems = [&](const Modules& modules) {
    Modules texts;
    for (const Problem& problem : frozen_problems(run.family, run.model, modules))
      texts.push_back(problem.text + " | " + problem.hint);
    return texts;
  };
  EXPECT_EQ(problems({}), Modules{});
  EXPECT_EQ(problems({"mlp", "decoder.layers.2"}), Modules{});
  EXPECT_EQ(problems({"decoder.layers.3", "mpl"}),
            (Modules{"--freeze-modules decoder.layers.3: no parameter of --model gpt has this in "
                     "its name | did you mean decoder.layers.0?",
                     "--freeze-modules mpl: no parameter of --model gpt has this in its name | did "
                     "you mean mlp?"}));
  EXPECT_EQ(problems({"decoder", "embedding"}),
            Modules{"--freeze-modules freezes all parameters: nothing is left to train | leave "
                    "some of the modules out"});
  EXPECT_EQ(num_frozen_parameters(run.family, run.model, {"embedding"}), 61 * 32);
}

RunConfig gpt2_run() {
  RunConfig config = tiny_run();
  config.model.position_embedding_type = PositionEmbedding::learned_absolute;
  config.model.normalization = Normalization::LayerNorm;
  config.model.swiglu = config.model.qk_layernorm = false;
  config.model.add_bias_linear = true;
  return config;
}

std::map<std::string, std::vector<char>> weights_of(const ParameterStore& store) {
  std::map<std::string, std::vector<char>> weights;
  for (const Parameter* parameter : store.parameters())
    weights[parameter->name()] = bytes_of(parameter->value());
  return weights;
}

double squares_of(const Tensor& gradient) {
  double sum = 0;
  for (const double value : to_values(gradient)) sum += value * value;
  return sum;
}

// One step with some parameters frozen, and the same step with none.
void expect_frozen(RunConfig config, const Modules& modules) {
  SCOPED_TRACE(modules.front());
  Runtime runtime({.threads = 1});
  Session all(config, runtime.device());
  config.train.freeze_modules = modules;
  Session some(config, runtime.device());
  const size_t frozen = some.frozen.parameters().size();
  EXPECT_GT(frozen, 0u);
  EXPECT_EQ(some.store.parameters().size() + frozen, all.store.parameters().size());
  const auto before = weights_of(some.frozen);
  for (const auto& [name, weight] : before)
    EXPECT_EQ(weight, bytes_of(all.store.find(name).value())) << name << " begins with the same";

  for (Session* session : {&all, &some}) {
    session->train_batches.load(0);
    session->step.run(session->train_batches,
                      {.iteration = 1, .update = 1, .lr = 1e-2, .weight_decay = 0.1});
  }
  const StepResults results = some.step.collect();
  EXPECT_EQ(results.loss_sum, all.step.collect().loss_sum);
  double squares = 0;
  for (const Parameter* parameter : some.store.parameters()) {
    EXPECT_EQ(bytes_of(parameter->gradient()),
              bytes_of(all.store.find(parameter->name()).gradient()))
        << parameter->name();
    squares += squares_of(parameter->gradient());
  }
  EXPECT_NEAR(results.grad_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
  for (const Parameter* parameter : some.frozen.parameters())
    EXPECT_FALSE(parameter->gradient().defined()) << parameter->name();
  for (const OptimizerState& state : some.optimizer.states())
    EXPECT_EQ(state.flat.numel(), some.store.all().count) << state.name;

  train(some, 1, 3);
  EXPECT_EQ(weights_of(some.frozen), before);
}

TEST(FrozenModules, HaveNoGradientAndStayToTheByteWhileTheOthersTrainAsEver) {
  for (const bool bf16 : {false, true}) {
    RunConfig config = tiny_run();
    config.train.bf16 = bf16;
    for (const Modules& modules : std::vector<Modules>{{"mlp"},
                                                       {"self_attention"},
                                                       {"embedding"},
                                                       {"layer_norm_weight"},
                                                       {"linear_qkv.weight"},
                                                       {"linear_fc2"},
                                                       {"q_layernorm"},
                                                       {"final_layernorm"},
                                                       {"decoder.layers.0", "decoder.layers.1"}})
      expect_frozen(config, modules);
    config = gpt2_run();
    config.train.bf16 = bf16;
    config.model.untie_embeddings_and_output_weights = true;
    for (const Modules& modules : std::vector<Modules>{{"bias"},
                                                       {"linear_fc1.weight"},
                                                       {"layer_norm_bias"},
                                                       {"output_layer"},
                                                       {"position_embeddings"},
                                                       {"decoder"}})
      expect_frozen(config, modules);
  }
}

TEST(FrozenModules, StayWhenLayersAreRecomputed) {
  RunConfig config = tiny_run();
  config.train.recompute_granularity = RecomputeGranularity::full;
  config.train.recompute_method = RecomputeMethod::uniform;
  config.train.recompute_num_layers = 1;
  expect_frozen(config, {"mlp"});
  expect_frozen(config, {"embedding", "decoder.layers.0"});
}

TEST(FrozenModules, ACheckpointHasTheirWeightsAlone) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.train.freeze_modules = {"mlp"};
  Runtime runtime({.threads = 1});
  Session session(config, runtime.device());
  save_session(folder.path(), session, {.iteration = 1});
  const NativeCheckpoint file(checkpoint_path(folder.path(), 1));
  EXPECT_TRUE(file.tensors().contains("decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_FALSE(file.tensors().contains("optimizer.exp_avg.decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_TRUE(file.tensors().contains(
      "optimizer.exp_avg.decoder.layers.0.self_attention.linear_qkv.weight"));
}

TEST(FrozenModules, ARunMayFreezeMoreWhenItGoesOnButNotLess) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  Runtime runtime({.threads = 1});
  const auto save = [&](const Modules& modules, const char* name) {
    config.train.freeze_modules = modules;
    config.train.load = "";
    Session session(config, runtime.device());
    train(session, 0, 1);
    save_session(folder / name, session, {.iteration = 1});
    return weights_of(session.store);
  };
  const auto load = [&](const Modules& modules, const char* name) {
    config.train.freeze_modules = modules;
    config.train.load = (folder / name).string();
    auto session = std::make_unique<Session>(config, runtime.device());
    EXPECT_TRUE(load_session(*session));
    return session;
  };
  const auto before = save({}, "all");
  const auto more = load({"mlp"}, "all");
  for (const ParameterStore* store : {&more->store, &more->frozen})
    for (const auto& [name, weight] : weights_of(*store))
      EXPECT_EQ(weight, before.at(name)) << name;

  save({"mlp"}, "without mlp");
  try {
    load({}, "without mlp");
    FAIL() << "moments came out of nothing";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("without optimizer state: it was frozen"));
    EXPECT_THAT(error.what(), HasSubstr("--no-load-optim"));
  }
  config.train.load_optim = false;
  EXPECT_EQ(load({}, "without mlp")->frozen.parameters().size(), 0u);
}

}  // namespace
}  // namespace phx
