// --load of a torch_dist checkpoint that PyTorch wrote in Megatron's keys
// (scripts/make_torch_fixtures.py), and of our own.
#include "phalanx/train/load_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/kernels/master_split.h"
#include "phalanx/train/save_session.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

// The run that the fixture is a checkpoint of.
RunConfig fixture_run() {
  RunConfig config;
  TransformerConfig& model = config.model;
  model.num_layers = 2;
  model.hidden_size = 8;
  model.num_attention_heads = 4;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.kv_channels = 2;
  model.ffn_hidden_size = 6;
  model.seq_length = model.max_position_embeddings = 16;
  model.vocab_size = 24;
  model.position_embedding_type = PositionEmbedding::rope;
  model.normalization = Normalization::RMSNorm;
  model.norm_epsilon = 1e-6;
  model.swiglu = true;
  model.add_bias_linear = false;
  model.attention_dropout = model.hidden_dropout = 0;
  model.untie_embeddings_and_output_weights = true;
  config.train.bf16 = true;
  config.train.micro_batch_size = 1;
  config.train.global_batch_size = 8;
  config.train.train_iters = 100;
  config.optim.lr = 1e-3;
  config.data.mock_data = true;
  config.train.load = torch_fixture("torch_dist").string();
  return config;
}

void on_ranks(const RunConfig& config, int world, const std::function<void(Session&)>& body) {
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), world);
  run_thread_ranks(world, {}, [&](World& ranks) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    Session session(config, sources, runtime.device(), mesh);
    body(session);
  });
}

// On eight ranks: tensors cut two ways, two stages, optimizer state cut once more.
TEST(MegatronLoad, WeightsAndOptimizerStateComeUnderAnyLayout) {
  const TempFolder folder;
  RunConfig config = fixture_run();
  config.parallel.tensor_model_parallel_size = 2;
  config.parallel.pipeline_model_parallel_size = 2;
  config.parallel.use_distributed_optimizer = true;
  on_ranks(config, 8, [&](Session& session) {
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded && loaded->state);
    EXPECT_EQ(loaded->state->iteration, 30);
    EXPECT_EQ(loaded->report.tensors, 60);
    save_session(folder.path(), session, *loaded->state);
  });
  const NativeCheckpoint native(checkpoint_path(folder.path(), 30));
  EXPECT_EQ(native.tensors().size(), 60u);
  for (const auto& [name, info] : native.tensors()) {
    if (name.starts_with("optimizer.exp_avg"))
      expect_fixture(native, name, "optimizer.state." + name.substr(sizeof("optimizer.") - 1));
    if (name.starts_with("optimizer.")) continue;
    const auto weight = read_numbers(native, name);
    const auto remainder = read_numbers(native, "optimizer.master_remainder." + name);
    for (size_t i = 0; i < weight.size(); ++i) {
      const bf16 half(float(weight[i]));
      const uint32_t bits = kernels::join_master_bits(half.bits, uint16_t(remainder[i]));
      float master;
      std::memcpy(&master, &bits, sizeof master);
      ASSERT_EQ(master, fixture_master(name, int64_t(i))) << name;
    }
  }
}

// Four layers, no optimizer state.
RunConfig weights_run() {
  RunConfig config = fixture_run();
  config.train.bf16 = false;
  config.train.load = torch_fixture("torch").string();
  config.model.num_layers = 4;
  return config;
}

TEST(MegatronLoad, ARunDoesNotGoOnWithoutItsOptimizerState) {
  on_ranks(weights_run(), 1, [&](Session& session) {
    const std::string error = error_of([&] { load_session(session); });
    EXPECT_THAT(error, HasSubstr("model_optim_rng.pt holds no optimizer state"));
    EXPECT_THAT(error, HasSubstr("--no-load-optim"));
  });
}

TEST(MegatronLoad, NoLoadOptimTakesTheWeightsAndTheCounters) {
  RunConfig config = weights_run();
  config.train.load_optim = false;
  on_ranks(config, 1, [&](Session& session) {
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded && loaded->state);
    EXPECT_EQ(loaded->report.tensors, 27);
    EXPECT_EQ(loaded->state->iteration, 30);
    EXPECT_EQ(loaded->state->updates, 0);  // moments begin anew
  });
}

class EditedLoad : public ::testing::Test {
 protected:
  EditedLoad() : edited_(torch_fixture("torch_dist"), folder_ / "edited") {}
  RunConfig config() {
    RunConfig config = fixture_run();
    config.train.load = edited_.path.string();
    return config;
  }
  std::string error() {
    std::string error;
    on_ranks(config(), 1,
             [&](Session& session) { error = error_of([&] { load_session(session); }); });
    return error;
  }
  // What a run without Adam's state has as its weight.
  std::vector<double> weight_without_optimizer(const std::string& name) {
    RunConfig config = this->config();
    config.train.load_optim = false;
    on_ranks(config, 1, [&](Session& session) {
      const auto loaded = load_session(session);
      ASSERT_TRUE(loaded && loaded->state);
      save_session(folder_ / "saved", session, *loaded->state);
    });
    return read_numbers(NativeCheckpoint(checkpoint_path(folder_ / "saved", 30)), name);
  }

  TempFolder folder_;
  EditedTorchDist edited_;
};

const char* const kFinalNorm = "decoder.final_layernorm.weight";

// Somebody merged or edited the weights: the masters are those of the old model.
TEST_F(EditedLoad, ChangedWeightsAreRefusedWithTheirOldMastersAndTakenWithoutThem) {
  edited_.replace(kFinalNorm, "decoder.layers.mlp.linear_fc1.layer_norm_weight");
  edited_.save();
  EXPECT_THAT(error(), HasSubstr(str_cat("the weight ", kFinalNorm, " has")));
  EXPECT_THAT(error(), HasSubstr("--no-load-optim"));
  const auto weight = weight_without_optimizer(kFinalNorm);
  for (size_t i = 0; i < weight.size(); ++i)
    EXPECT_EQ(weight[i],
              fixture_value("decoder.layers.0.mlp.linear_fc1.layer_norm_weight", int64_t(i)));
}

TEST_F(EditedLoad, StateWithoutAdamsStepIsRefused) {
  nlohmann::json common = edited_.common();
  common["optimizer"]["optimizer"]["param_groups"][0].erase("step");
  edited_.set_common(common);
  edited_.save();
  EXPECT_THAT(error(), HasSubstr("does not say Adam's count of steps"));
  EXPECT_THAT(error(), HasSubstr("--no-load-optim"));
  EXPECT_FALSE(weight_without_optimizer(kFinalNorm).empty());
}

TEST_F(EditedLoad, StateWithoutThePositionOfItsSchedulesIsRefused) {
  nlohmann::json common = edited_.common();
  common["opt_param_scheduler"].erase("num_steps");
  edited_.set_common(common);
  edited_.save();
  EXPECT_THAT(error(), HasSubstr("does not say the position of its schedules"));
}

TEST_F(EditedLoad, AMissingMomentIsNamed) {
  const std::string key = str_cat("optimizer.state.exp_avg_sq.", kFinalNorm);
  edited_.metadata.tensors.erase(key);
  edited_.save();
  EXPECT_THAT(error(), HasSubstr(str_cat("optimizer state is incomplete: optimizer.exp_avg_sq.",
                                         kFinalNorm, " is missing")));
}

TEST_F(EditedLoad, DamagedStateDoesNoHarmToARunWithoutIt) {
  for (auto& [key, tensor] : edited_.metadata.tensors)
    if (key.starts_with("optimizer.")) tensor.chunks[0].place.offset = int64_t{1} << 40;
  edited_.save();
  EXPECT_THAT(error(), HasSubstr("it is cut off"));
  EXPECT_FALSE(weight_without_optimizer(kFinalNorm).empty());
}

TEST(MegatronLoad, AReleaseBeginsANewRun) {
  const TempFolder folder;
  std::filesystem::copy(torch_fixture("torch") / "iter_0000030", folder.path() / "release",
                        std::filesystem::copy_options::recursive);
  write_file(folder.path() / "latest_checkpointed_iteration.txt", "release");
  RunConfig config = weights_run();
  config.train.load = folder.path().string();
  on_ranks(config, 1, [&](Session& session) {
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->report.tensors, 27);
    EXPECT_FALSE(loaded->state);
  });
}

TEST(MegatronLoad, AnotherModelIsRefusedByName) {
  RunConfig config = fixture_run();
  config.model.num_layers = 3;
  on_ranks(config, 1, [&](Session& session) {
    EXPECT_THAT(error_of([&] { load_session(session); }),
                HasSubstr("decoder.layers.2.mlp.linear_fc1.weight"));
  });
}

// --- checkpoints of our own

RunConfig small_run(const Path& load) {
  RunConfig config = fixture_run();
  config.train.bf16 = false;
  config.train.load = load.string();
  return config;
}

TEST(LoadSession, WithoutACheckpointThereIsNothingToLoad) {
  const TempFolder folder;
  on_ranks(small_run(folder.path()), 1,
           [](Session& session) { EXPECT_FALSE(load_session(session)); });
  EXPECT_EQ(error_of([&] { checkpoint_options(folder.path(), {}); }),
            folder.path().string() + " holds no checkpoint");
}

TEST(LoadSession, FinetuningTakesTheWeightsAndBeginsAtIterationZero) {
  const TempFolder folder;
  std::vector<double> saved;
  RunConfig config = small_run(folder.path());
  on_ranks(config, 1, [&](Session& session) {
    saved = to_values(session.store.weights());
    RunState state;
    state.iteration = 7;
    state.updates = 6;
    save_session(folder.path(), session, state);
  });
  config.train.seed += 1;  // other weights, before they are loaded
  config.train.finetune = true;
  on_ranks(config, 1, [&](Session& session) {
    EXPECT_NE(to_values(session.store.weights()), saved);
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded);
    EXPECT_FALSE(loaded->state);
    EXPECT_EQ(to_values(session.store.weights()), saved);
    EXPECT_EQ(loaded->path, checkpoint_path(folder.path(), 7));
  });
  config.train.seed -= 1;
  config.train.finetune = false;
  config.train.load_optim = false;
  on_ranks(config, 1, [&](Session& session) {
    const auto loaded = load_session(session);
    ASSERT_TRUE(loaded && loaded->state);
    EXPECT_EQ(loaded->state->iteration, 7);
    EXPECT_EQ(loaded->state->updates, 0) << "Adam begins anew";
  });
}

}  // namespace
}  // namespace phx
