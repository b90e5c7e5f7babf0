#include "phalanx/train/save_session.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;

TEST(SaveSession, WeightsMomentsAndTheRestOfBf16MastersAreSavedOnceEach) {
  for (const bool optimizer : {true, false}) {
    RunConfig config = tiny_run();
    config.train.bf16 = true;
    config.train.save_optim = optimizer;
    Runtime runtime;
    const Session session(config, runtime.device());
    std::map<std::string, int64_t> elements;
    for (const LocalBox& box : boxes_to_save(session)) elements[box.name] += box.box.numel();
    const std::string name = "decoder.layers.1.mlp.linear_fc2.weight";  // [32, 48]
    EXPECT_EQ(elements.at(name), 32 * 48);
    for (const char* state : {"exp_avg", "exp_avg_sq", "master_remainder"})
      EXPECT_EQ(elements.contains(std::string("optimizer.") + state + "." + name), optimizer)
          << state;
  }
}

TEST(SaveSession, TheInfoHasSeedStateAndSchedulesInSamples) {
  RunConfig config = tiny_run();  // 20 iterations of 6 samples
  config.train.seed = 11;
  config.optim.lr_warmup_iters = 2;
  config.json = "{\"hidden_size\": 32}";
  Runtime runtime;
  const Session session(config, runtime.device());
  const CheckpointInfo info = info_to_save(session, {.iteration = 9});
  EXPECT_EQ(nlohmann::json::parse(info.at("rng"))["seed"], 11);
  EXPECT_EQ(nlohmann::json::parse(info.at("state"))["iteration"], 9);
  EXPECT_EQ(nlohmann::json::parse(info.at("schedule"))["warm-up"], 12);
  EXPECT_EQ(nlohmann::json::parse(info.at("schedule"))["decay"], 120);
  EXPECT_EQ(info.at("options"), config.json);
}

TEST(SaveSession, HuggingFaceFoldersLieBesideTheCheckpoints) {
  EXPECT_EQ(hf_folder_of("save", 30), Path("save/hf/iter_0000030"));
}

}  // namespace
}  // namespace phx
