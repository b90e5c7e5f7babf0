// Adam's state in torch folders that Megatron-LM itself saved (scripts/check_megatron_legacy.py
// --fixtures). That it is the right state, tests/cli/megatron_legacy_test.cpp tells by training on.
#include "phalanx/checkpoint/torch/torch_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch/legacy_fixture.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_folder.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TorchOptimizer, EveryWeightHasItsMomentsAndEvery16BitWeightItsMaster) {
  for (const char* name : {"llama_bf16_tp2", "gpt2_fp16", "gpt2_vpp2_do", "gpt2_1p_buckets"}) {
    const TorchFolder folder(legacy(name));
    EXPECT_EQ(folder.why_no_optimizer(), "") << name;
    EXPECT_TRUE(folder.optimizer_saved());
    size_t states = 0;
    for (const auto& [weight, info] : folder.tensors()) {
      if (!is_weight(weight)) continue;
      for (const char* prefix :
           {"optimizer.exp_avg.", "optimizer.exp_avg_sq.", "optimizer.master."}) {
        const auto state = folder.tensors().find(prefix + weight);
        const bool wanted = info.dtype != DType::f32 || std::string(prefix) != "optimizer.master.";
        ASSERT_EQ(state != folder.tensors().end(), wanted) << name << ": " << prefix << weight;
        if (!wanted) continue;
        ++states;
        EXPECT_EQ(state->second.shape, info.shape) << name << ": " << prefix << weight;
        EXPECT_EQ(state->second.dtype, DType::f32);
      }
    }
    EXPECT_EQ(folder.tensors().size(), num_weights(folder) + states) << name;
  }
}

// Element by element: the two come from different tensors of the files, cut by other rules.
TEST(TorchOptimizer, WeightsAreTheirMastersRounded) {
  for (const char* name : {"llama_bf16_tp2", "gpt2_fp16"}) {
    const TorchFolder folder(legacy(name));
    for (const auto& [weight, info] : folder.tensors()) {
      if (!is_weight(weight)) continue;
      const auto half = read_numbers(folder, weight);
      const auto master = read_numbers(folder, "optimizer.master." + weight);
      for (size_t i = 0; i < half.size(); ++i) {
        const float rounded = info.dtype == DType::bf16 ? float(bf16(float(master[i])))
                                                        : float(f16(float(master[i])));
        ASSERT_EQ(half[i], rounded) << name << ": " << weight << " at " << i;
      }
    }
  }
}

TEST(TorchOptimizer, SecondMomentsAreNotNegative) {
  for (const char* name : {"gpt2_vpp2_do", "gpt2_1p_buckets"}) {
    const TorchFolder folder(legacy(name));
    bool any = false;
    for (const auto& [state, info] : folder.tensors()) {
      if (!state.starts_with("optimizer.exp_avg_sq.")) continue;
      for (const double x : read_numbers(folder, state)) {
        ASSERT_GE(x, 0) << state;
        any |= x > 0;
      }
    }
    EXPECT_TRUE(any);
  }
}

TEST(TorchOptimizer, CountersAndLossScaleAreNumbers) {
  const auto common = parse_json(TorchFolder(legacy("gpt2_fp16")).common_json());
  EXPECT_EQ(common["optimizer"]["param_groups"][0]["step"], 3);
  EXPECT_EQ(common["optimizer"]["grad_scaler"]["scale"], 8192.0);  // grown after two iterations
  EXPECT_EQ(common["optimizer"]["grad_scaler"]["growth_tracker"], 1);
  EXPECT_EQ(parse_json(TorchFolder(legacy("gpt2_vpp2_do"))
                           .common_json())["optimizer"]["param_groups"][0]["step"],
            3);
}

// Two stages with two chunks each; the last holds a copy of the embedding.
TEST(TorchOptimizer, TheCopyOfATiedEmbeddingIsLeftOut) {
  const TorchFolder folder(legacy("gpt2_vpp2_do"));
  for (const auto& [name, info] : folder.tensors())
    EXPECT_FALSE(name.ends_with("output_layer.weight")) << name;
  EXPECT_EQ(folder.tensors().at("optimizer.exp_avg.embedding.word_embeddings.weight").shape,
            (Dims{24, 8}));
}

TEST_F(ChangedFolder, ADamagedFileIsNamed) {
  const Path path = copy("gpt2_1p_buckets");
  const std::string bytes = read_file(path / "mp_rank_00/distrib_optim.pt");
  write_file(path / "mp_rank_00/distrib_optim.pt", bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(why(path), HasSubstr("mp_rank_00/distrib_optim.pt"));
}

TEST_F(ChangedFolder, StateThatNobodyWantsIsNotOpened) {
  const Path path = copy("gpt2_1p_buckets");
  std::filesystem::remove(path / "mp_rank_00/distrib_optim.pt");
  std::filesystem::create_directory(path / "mp_rank_00/distrib_optim.pt");  // no file to open
  EXPECT_NE(why(path), "");
  const TorchFolder folder(path, {.optimizer = false});
  EXPECT_EQ(folder.why_no_optimizer(), "");
  EXPECT_TRUE(folder.optimizer_saved());
  EXPECT_EQ(folder.tensors().size(), num_weights(folder));
}

// Flips in the pickles of both files: an error, or a folder whose tensors can be read.
TEST_F(ChangedFolder, FlippedBytesDoNoHarm) {
  const Path path = copy("gpt2_1p_buckets");
  for (const char* name : {"mp_rank_00/model_optim_rng.pt", "mp_rank_00/distrib_optim.pt"}) {
    const std::string good = read_file(path / name);
    int refused = 0, opened = 0;
    for (size_t i = 40; i < good.size() / 2; i += 397) {
      std::string bytes = good;
      bytes[i] = char(bytes[i] ^ (1 << (i % 8)));
      write_file(path / name, bytes);
      try {
        const TorchFolder folder(path);
        ++opened;
        for (const auto& [tensor, info] : folder.tensors())
          if (tensor.find("final_layernorm") != tensor.npos) read_numbers(folder, tensor);
      } catch (const Error&) {
        ++refused;
      }
    }
    write_file(path / name, good);
    EXPECT_GT(refused + opened, 30) << name;
  }
  EXPECT_EQ(TorchFolder(path).why_no_optimizer(), "");
}

TEST_F(ChangedFolder, OfTheFirstModelsIsRefused) {
  const Path path = folder_.path() / "mp_rank_00";
  std::filesystem::create_directory(path);
  PickleWriter writer;
  writer.dict([&] {
    writer.text("checkpoint_version");
    writer.real(2.0);
    writer.text("model");
    writer.dict([] {});
  });
  write_file(path / "model_optim_rng.pt", writer.finish());
  EXPECT_THAT(error_of([&] { TorchFolder source(folder_.path()); }),
              HasSubstr("checkpoint_version 2"));
}

TEST_F(OneRank, OtherOptimizersAreRefused) {
  EXPECT_THAT(error(R"({"optimizer": "sgd"})"), HasSubstr("--optimizer sgd; only Adam's"));
  EXPECT_THAT(error(R"({"use_mup": true})"), HasSubstr("was trained with use_mup"));
}

TEST_F(OneRank, MastersOfOtherWeightsAreRefused) {
  auto& tensors = chunks_[0].tensors;
  std::swap(tensors.at("decoder.layers.0.mlp.linear_fc1.weight"),
            tensors.at("decoder.layers.1.mlp.linear_fc1.weight"));
  EXPECT_THAT(error("{}"), HasSubstr("the fp32 copy of decoder.layers.0.mlp.linear_fc1.weight"));
}

}  // namespace
}  // namespace phx
