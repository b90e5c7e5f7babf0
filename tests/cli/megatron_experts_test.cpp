// Experts in Megatron-LM's own torch_dist checkpoints: megatron_runs.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/memory_source.h"
#include "checkpoint/torch_fixture.h"
#include "cli/captured.h"
#include "cli/megatron_runs.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/cli/pretrain_options.h"
#include "phalanx/convert/logits.h"
#include "phalanx/convert/megatron_model.h"
#include "phalanx/report/metrics.h"
#include "support/gradients.h"

namespace phx {
namespace {

using namespace phx::testing::megatron;
using ::phx::testing::run;
using ::testing::HasSubstr;

// Where Megatron cuts experts over ranks it has two optimizers, and wants to find two.
TEST(MegatronExperts, ExportsHaveAnOptimizerOfTheirOwnIfMegatronWillCutThem) {
  const TempFolder out;
  const std::string native = out / "native";
  ASSERT_EQ(
      run({"convert", "import", "--megatron", fixture("moe_ep2_dp"), "--native", native}).code, 0);
  for (const char* ranks : {"1", "2"}) {
    const Path exported = out / (std::string("exported") + ranks);
    const auto outcome = run({"convert", "export", "--native", native, "--torch-dist", exported,
                              "--optimizer", "--expert-model-parallel-size", ranks});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto common = parse_json(TorchDistCheckpoint(checkpoint_path(exported, 3)).common_json());
    const bool two = std::string(ranks) == "2";
    EXPECT_EQ(common.at("optimizer").contains("0"), two);
    if (!two) continue;
    const auto groups = common.at("optimizer").at("1").at("optimizer").at("param_groups");
    ASSERT_EQ(groups.size(), 1u) << "experts have matrices only";
    EXPECT_EQ(groups[0].at("is_expert_parallel"), true);
    EXPECT_EQ(groups[0].at("step"), 3);
    EXPECT_EQ(common.at("args").at("expert_model_parallel_size"), 2);
    EXPECT_EQ(common.at("args").at("moe_aux_loss_coeff"), 1e-2) << "a number, no list";
  }
}

// The folder of two ranks goes on with its experts on two ranks of ours.
TEST(MegatronExperts, GoOnUnderExpertParallelism) {
  for (const std::string name : {"moe_freq_ep2_full", "moe_bias_ep2_dp"}) {
    const TempFolder out;
    const auto outcome =
        run(words(pretrain(name, fixture(name), out) +
                  str_cat("--local-ranks 2 --expert-model-parallel-size 2 --metrics-file ",
                          (out / "metrics.jsonl").string())));
    ASSERT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    const auto losses = read_losses(out / "metrics.jsonl").train;
    const auto theirs = about(fixture(name)).at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), theirs.size());
    for (size_t i = 0; i < theirs.size(); ++i) EXPECT_NEAR(losses[i].second, theirs[i], 1e-6);
  }
}

// Three steps of 0.01 up or down, and none where an expert had the mean. They decide about experts:
// without them the logits are others.
TEST(MegatronExperts, BiasesAreReadAndUsed) {
  const MegatronModel megatron(fixture("moe_bias_ep2_dp"), {}, 0, MegatronParts::weights);
  PretrainOptions options = PretrainOptions::from_json(json_text(megatron.options()));
  options.model.resolve();
  EXPECT_TRUE(options.model.moe.moe_router_enable_expert_bias);
  const std::string name = "decoder.layers.0.mlp.router.expert_bias";
  for (const double bias : read_numbers(*megatron.weights, name)) {
    EXPECT_NEAR(bias * 100, std::round(bias * 100), 1e-4);
    EXPECT_LE(std::abs(bias), 0.0301);
  }
  TensorsInMemory without(*megatron.weights);
  without.set(name, {DType::f32, {4}}, std::vector<std::byte>(16));
  const SafetensorsFile file(fixture("moe_bias_ep2_dp") / "logits.safetensors");
  const auto& bytes = file.at("tokens").bytes;
  std::vector<int64_t> tokens(bytes.size() / sizeof(int64_t));
  std::memcpy(tokens.data(), bytes.data(), bytes.size());
  const auto logits = [&](const TensorSource& source) {
    return logits_of(options.model, source, tokens, DType::f32, phx::testing::test_device());
  };
  EXPECT_GT(compare_logits(logits(without), logits(*megatron.weights), 24).largest, 1e-3);
}

TEST(MegatronExperts, GroupsThatMegatronWouldRankOtherwiseAreNotExported) {
  for (const char* best : {"1", "2"}) {
    const TempFolder out;
    const auto trained = run(words(
        "pretrain --num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 "
        "--max-position-embeddings 8 --disable-bias-linear --num-experts 4 --moe-router-topk 2 "
        "--moe-router-num-groups 2 --moe-router-group-topk 1 --vocab-size 16 --mock-data "
        "--micro-batch-size 1 --train-iters 1 --lr 1e-3 --device cpu --save-interval 1 "
        "--moe-router-group-best " +
        std::string(best) + " --save " + (out / "native").string()));
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto outcome =
        run({"convert", "export", "--native", out / "native", "--torch-dist", out / "exported"});
    EXPECT_EQ(outcome.code == 0, std::string(best) == "2") << outcome.err;
    if (outcome.code != 0)
      EXPECT_THAT(outcome.err, HasSubstr("was trained with --moe-router-group-best 1, but Megatron "
                                         "ranks a group by --moe-router-topk 2 / "
                                         "--moe-router-group-topk 1 scores"));
  }
}

// The norm before experts belongs to no linear layer, which --transformer-impl local does not say.
TEST(MegatronExperts, TheirNormIsReadUnderBothOfItsKeys) {
  const TempFolder out;
  const Path iteration = fixture("moe_ep2_dp") / "iter_0000003";
  const std::string local = "decoder.layers.mlp.linear_fc1.layer_norm_weight",
                    own = "decoder.layers.pre_mlp_layernorm.weight";
  ASSERT_TRUE(keys(iteration).contains(local) && !keys(iteration).contains(own));
  const TorchDistCheckpoint before(iteration);
  const std::string name = "decoder.layers.0.pre_mlp_layernorm.weight";
  EditedTorchDist edited(iteration, out / "copy");
  auto moved = edited.metadata.tensors.extract(local);
  moved.key() = own;
  edited.metadata.tensors.insert(std::move(moved));
  edited.save();
  EXPECT_EQ(read_numbers(TorchDistCheckpoint(edited.path), name), read_numbers(before, name));
}

}  // namespace
}  // namespace phx
