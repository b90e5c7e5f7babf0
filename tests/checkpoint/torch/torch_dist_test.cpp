#include "phalanx/checkpoint/torch/torch_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/master_fit.h"
#include "phalanx/checkpoint/torch/megatron_names.h"
#include "phalanx/checkpoint/torch/split_masters.h"
#include "phalanx/checkpoint/torch/torch_dist_writer.h"
#include "phalanx/checkpoint/torch/torch_file.h"
#include "phalanx/checkpoint/torch/torch_folder.h"
#include "phalanx/checkpoint/torch/torch_kind.h"
#include "phalanx/kernels/master_split.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The names of the script's model: as many layers, those from `moe_from` on with two experts.
std::vector<std::string> model_names(int layers, int moe_from) {
  std::vector<std::string> names = {"embedding.word_embeddings.weight",
                                    "decoder.final_layernorm.weight", "output_layer.weight"};
  for (int layer = 0; layer < layers; ++layer) {
    const std::string prefix = str_cat("decoder.layers.", layer, ".");
    for (const char* name :
         {"self_attention.linear_qkv.layer_norm_weight", "self_attention.linear_qkv.weight",
          "self_attention.linear_proj.weight"})
      names.push_back(prefix + name);
    if (layer < moe_from) {
      for (const char* name :
           {"mlp.linear_fc1.layer_norm_weight", "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"})
        names.push_back(prefix + name);
    } else {
      for (const char* name : {"pre_mlp_layernorm.weight", "mlp.router.weight",
                               "mlp.experts.linear_fc1.weight0", "mlp.experts.linear_fc1.weight1",
                               "mlp.experts.linear_fc2.weight0", "mlp.experts.linear_fc2.weight1"})
        names.push_back(prefix + name);
    }
  }
  return names;
}

TEST(TorchDist, LayersAreUnstackedFromWhatPyTorchSaved) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist"));
  const auto names = model_names(2, 2);
  EXPECT_EQ(checkpoint.tensors().size(), 4 * names.size());  // weights and three states
  for (const std::string& name : names) {
    EXPECT_EQ(checkpoint.tensors().at(name).dtype, DType::bf16);
    expect_fixture(checkpoint, name, name);
  }
  EXPECT_EQ(checkpoint.tensors().at("decoder.layers.1.mlp.linear_fc1.weight").shape, (Dims{12, 8}));
  EXPECT_TRUE(checkpoint.notes().empty());
  EXPECT_EQ(checkpoint.description(), "torch_dist (torch_dist, 60 tensors)");
}

TEST(TorchDist, ReshardableOptimizerStateHasOurNames) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist"));
  const std::pair<const char*, const char*> states[] = {
      {"optimizer.exp_avg.", "optimizer.state.exp_avg."},
      {"optimizer.exp_avg_sq.", "optimizer.state.exp_avg_sq."}};
  for (const auto& [ours, theirs] : states) {
    for (const std::string& name : model_names(2, 2)) {
      EXPECT_EQ(checkpoint.tensors().at(ours + name).dtype, DType::f32);
      expect_fixture(checkpoint, ours + name, theirs + name);
    }
  }
  for (const std::string& name : model_names(2, 2)) {
    const auto masters = read_numbers(checkpoint, "optimizer.master." + name);
    for (size_t i = 0; i < masters.size(); ++i)
      ASSERT_EQ(masters[i], fixture_master(name, int64_t(i))) << name << " at " << i;
  }
}

TEST(TorchDist, TheOlderGenerationHasNumberedLayersAndExperts) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist_older"));
  const auto names = model_names(2, 1);
  EXPECT_EQ(checkpoint.tensors().size(), names.size());
  for (const std::string& name : names) expect_fixture(checkpoint, name, name);
  ASSERT_EQ(checkpoint.notes().size(), 1u);  // its optimizer state is cut by data-parallel ranks
  EXPECT_THAT(checkpoint.notes()[0],
              HasSubstr("the run's arguments do not say 'tensor_model_parallel_size'"));
}

TEST(TorchDist, AFlippedBitIsAnErrorThatNamesTheFileAndTheEntry) {
  const TempFolder folder;
  const Path copy = folder / "torch_dist";
  std::filesystem::copy(torch_fixture("torch_dist"), copy,
                        std::filesystem::copy_options::recursive);
  // The chunk's own archive: its data lies in the middle, behind the pickle.
  const std::string name = "embedding.word_embeddings.weight";
  const auto metadata = TorchDistMetadata::read(copy / ".metadata");
  const TorchDistPlace place = metadata.tensors.at(name).chunks[0].place;
  std::string bytes = read_file(copy / place.file);
  const std::string archive = bytes.substr(size_t(place.offset), size_t(place.length));
  const ZipReader zip(as_bytes(archive), "chunk");
  for (const auto& [entry, content] : zip.entries()) {
    if (entry.find("/data/") == entry.npos || entry.find("serialization_id") != entry.npos)
      continue;
    const auto within = reinterpret_cast<const char*>(content->bytes().data()) - archive.data();
    bytes[size_t(place.offset + within)] ^= 1;
  }
  write_file(copy / place.file, bytes);
  const TorchDistCheckpoint checkpoint(copy);
  const std::string message = error_of([&] { read_numbers(checkpoint, name); });
  EXPECT_THAT(message, HasSubstr((copy / place.file).string() + ": " + name));
  EXPECT_THAT(message, HasSubstr("/data/0' is damaged"));
  expect_fixture(checkpoint, "decoder.final_layernorm.weight", "decoder.final_layernorm.weight");
}

TEST(TorchDist, BothGenerationsSayTheRunsArguments) {
  for (const char* name : {"torch_dist", "torch_dist_older"}) {
    const TorchDistCheckpoint checkpoint(torch_fixture(name));
    EXPECT_THAT(checkpoint.common_json(), HasSubstr("\"iteration\":30"));
    EXPECT_THAT(checkpoint.common_json(), HasSubstr("\"num_query_groups\":2"));
    EXPECT_THAT(checkpoint.common_json(), HasSubstr("\"params_dtype\":\"torch.bfloat16\""));
    EXPECT_THAT(checkpoint.common_json(), HasSubstr("\"attention_backend\":5"));
    EXPECT_THAT(checkpoint.common_json(), HasSubstr("\"data_path\":[\"a\",\"b\"]"));
  }
}

// Numbers with all 24 bits in use, beside weights of every type. `scale`: of the weights, whose
// masters stay.
class Masters : public TensorSource {
 public:
  explicit Masters(float scale = 1) : scale_(scale) {}
  static float value(int64_t i) { return 1.0f + float(i) * 0x1p-23f * 777.0f; }
  const std::map<std::string, TensorInfo>& tensors() const override { return infos_; }
  void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
    const DType dtype = infos_.at(name).dtype;
    const float scale = name.starts_with("optimizer.") ? 1 : scale_;
    for_float_dtype(dtype, [&]<class T>() {
      for (int64_t i = 0; i < box.size[0] * box.size[1]; ++i) {
        const T number(
            scale * value((box.begin[0] + i / box.size[1]) * 100 + box.begin[1] + i % box.size[1]));
        std::memcpy(out.data() + i * int64_t(sizeof(T)), &number, sizeof(T));
      }
    });
  }
  std::string description() const override { return "masters"; }

 private:
  float scale_;
  std::map<std::string, TensorInfo> infos_ = {{"a", {DType::bf16, {50, 100}}},
                                              {"optimizer.master.a", {DType::f32, {50, 100}}},
                                              {"optimizer.exp_avg.a", {DType::f32, {50, 100}}},
                                              {"b", {DType::f32, {4, 4}}},
                                              {"optimizer.master.b", {DType::f32, {4, 4}}},
                                              {"c", {DType::f16, {4, 4}}},
                                              {"optimizer.master.c", {DType::f32, {4, 4}}}};
};

TEST(SplitMasters, WeightsAndRemaindersGiveTheMastersBack) {
  const SplitMasters split(std::make_shared<Masters>());
  std::vector<std::string> names;
  for (const auto& [name, info] : split.tensors()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("a", "b", "c", "optimizer.exp_avg.a", "optimizer.master.c",
                                 "optimizer.master_remainder.a"));
  const Box box{{7, 3}, {40, 90}};
  std::vector<uint16_t> weight(3600), remainder(3600);
  split.read("a", box, std::as_writable_bytes(std::span(weight)));
  split.read("optimizer.master_remainder.a", box, std::as_writable_bytes(std::span(remainder)));
  for (int64_t i = 0; i < 3600; ++i) {
    const float master = Masters::value((7 + i / 90) * 100 + 3 + i % 90);
    uint32_t bits;
    std::memcpy(&bits, &master, 4);
    EXPECT_EQ(kernels::join_master_bits(weight[size_t(i)], remainder[size_t(i)]), bits) << i;
  }
}

TEST(SplitMasters, WeightsThatWereChangedAreRefusedByName) {
  const auto read = [](float scale, const std::string& name) {
    const SplitMasters split(std::make_shared<Masters>(scale));
    return read_numbers(split, name, {{0, 0}, {4, 4}});
  };
  const auto error = [&](float scale, const std::string& name) {
    return error_of([&] { read(scale, name); });
  };
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_NO_THROW(read(1, name));
    EXPECT_THAT(error(2, name), HasSubstr(str_cat("the weight ", name, " has 2")));
    EXPECT_THAT(error(2, name), HasSubstr("--no-load-optim"));
  }
  EXPECT_NE(error(1 + 0x1p-22f, "b"), "");  // fp32 weights are their masters
  EXPECT_NO_THROW(read(2, "optimizer.exp_avg.a"));
}

// The rule of folders and of buckets alike: some Adams do not round to nearest even.
TEST(MasterFit, SixteenBitWeightsMayBeOffByOneLastPlace) {
  const auto fits = [](auto weight, float master) {
    using T = decltype(weight);
    const std::span<const T> one(&weight, 1);
    return !master_misfit(dtype_of<T>(), std::as_bytes(one), std::span(&master, 1));
  };
  EXPECT_TRUE(fits(bf16(1.0f), 1.0f + 0x1p-7f * 0.9f));
  EXPECT_FALSE(fits(bf16(1.0f), 1.0f + 0x1p-7f * 1.1f));
  EXPECT_TRUE(fits(f16(1.0f), 1.0f + 0x1p-10f * 0.9f));
  EXPECT_FALSE(fits(f16(1.0f), 1.0f + 0x1p-10f * 1.1f));
  EXPECT_TRUE(fits(f16(0x1p-24f), 1e-9f));  // denormals
  EXPECT_FALSE(fits(1.0f, std::nextafter(1.0f, 2.0f)));
  EXPECT_FALSE(fits(bf16(1.0f), std::numeric_limits<float>::quiet_NaN()));
}

TEST(TorchDist, RowsOfPaddingAreNotShown) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist"), {.vocab_size = 22});
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight",
                           "optimizer.exp_avg.output_layer.weight"})
    EXPECT_EQ(checkpoint.tensors().at(name).shape, (Dims{22, 8})) << name;
  expect_fixture(checkpoint, "output_layer.weight", "output_layer.weight");
}

// A copy of a fixture that a test may damage.
Path copied(const TempFolder& folder, const char* name) {
  std::filesystem::copy(torch_fixture(name), folder.path() / name,
                        std::filesystem::copy_options::recursive);
  return folder / name;
}

TEST(TorchDist, DamagedCheckpointsAreRefusedByFile) {
  const TempFolder folder;
  const Path path = copied(folder, "torch_dist");
  const auto error = [&] { return error_of([&] { TorchDistCheckpoint checkpoint(path); }); };
  const std::string metadata = read_file(path / ".metadata");
  const std::string chunks = read_file(path / "__1_0.distcp");

  write_file(path / "__1_0.distcp", chunks.substr(0, chunks.size() - 1));
  EXPECT_THAT(error(), HasSubstr("__1_0.distcp has"));
  EXPECT_THAT(error(), HasSubstr("it is cut off"));
  std::filesystem::remove(path / "__1_0.distcp");
  EXPECT_THAT(error(), HasSubstr("__1_0.distcp"));
  write_file(path / "__1_0.distcp", chunks);

  for (size_t size = 0; size < metadata.size(); size += 101) {
    write_file(path / ".metadata", metadata.substr(0, size));
    EXPECT_THAT(error(), HasSubstr(".metadata")) << size;
  }
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = metadata;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_file(path / ".metadata", changed.replace(at, from.size(), to));
    return error();
  };
  EXPECT_THAT(with("__1_0.distcp", "../_0.distcp"), HasSubstr("is no file of this folder"));
  EXPECT_THAT(with("ChunkStorageMetadata", "ChunkStorageMetadatb"),
              HasSubstr("metadata.ChunkStorageMetadatb is not on the list of names"));
  write_file(path / ".metadata", metadata);
  write_file(path / "metadata.json", R"({"sharded_backend": "zarr"})");
  EXPECT_THAT(error(), HasSubstr("of the kind 'zarr'; only torch_dist is read"));
}

TEST(TorchDist, WhatIsWrittenIsReadAgain) {
  for (const char* name : {"torch_dist", "torch_dist_older"}) {  // layers alike, and not
    const TempFolder folder;
    const TorchDistCheckpoint before(torch_fixture(name));
    write_torch_dist(before, folder / "iter_0000030",
                     {.iteration = 30,
                      .args = R"({"a": [1, 2.5, "x", null, true], "b": {"c": -7}})",
                      .file_bytes = 5000});
    EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000030" / "__0_1.distcp"));
    const TorchDistCheckpoint after(folder / "iter_0000030");
    const auto names = model_names(2, name == std::string("torch_dist") ? 2 : 1);
    EXPECT_EQ(after.tensors().size(), names.size());
    for (const std::string& tensor : names) expect_fixture(after, tensor, tensor);
    EXPECT_EQ(after.common_json(),
              R"({"args":{"a":[1,2.5,"x",null,true],"b":{"c":-7}},"checkpoint_version":3.0,)"
              R"("iteration":30})");
    EXPECT_THAT(error_of([&] { write_torch_dist(before, folder / "iter_0000030"); }),
                HasSubstr("holds a checkpoint already"));
  }
}

TEST(TorchDist, KeysAreStackedOnlyWhereLayersAreAlike) {
  std::map<std::string, TensorInfo> tensors = {
      {"decoder.layers.0.mlp.linear_fc1.weight", {DType::f32, {4, 2}}},
      {"decoder.layers.1.mlp.linear_fc1.weight", {DType::f32, {4, 2}}},
      {"decoder.final_layernorm.weight", {DType::f32, {2}}}};
  EXPECT_EQ(stacked(tensors).at("decoder.layers.mlp.linear_fc1.weight").info.shape,
            (Dims{2, 4, 2}));
  tensors["decoder.layers.1.mlp.linear_fc1.bias"] = {DType::f32, {4}};
  EXPECT_EQ(stacked(tensors).size(), 4u);
  EXPECT_EQ(stacked(tensors).at("decoder.layers.1.mlp.linear_fc1.weight").info.shape, (Dims{4, 2}));
}

TEST(TorchFolder, JoinsTheRanksOfTensorsStagesAndChunks) {
  const TorchFolder folder(torch_fixture("torch") / "iter_0000030");
  const auto names = model_names(4, 4);
  EXPECT_EQ(folder.tensors().size(), names.size());
  for (const std::string& name : names) expect_fixture(folder, name, name);
  EXPECT_THAT(folder.common_json(), HasSubstr("\"tensor_model_parallel_size\":2"));
  EXPECT_EQ(folder.description(), "iter_0000030 (torch, 4 files, 27 tensors)");
}

TEST(TorchFolder, AMissingRankIsNoticed) {
  const TempFolder folder;
  const Path path = copied(folder, "torch") / "iter_0000030";
  std::filesystem::remove_all(path / "mp_rank_01_001");
  EXPECT_THAT(error_of([&] { TorchFolder source(path); }),
              HasSubstr("the checkpoint is incomplete"));
  std::filesystem::remove_all(path / "mp_rank_01_000");
  EXPECT_THAT(error_of([&] { TorchFolder source(path); }),
              HasSubstr("was saved with tensor_model_parallel_size 2, but there are files of 1"));
}

TEST(TorchKind, IsSeenFromTheFolder) {
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch_dist")).kind, TorchKind::torch_dist);
  const auto place = torch_checkpoint_kind(torch_fixture("torch"));  // through its tracker
  EXPECT_EQ(place.kind, TorchKind::torch);
  EXPECT_EQ(place.path, torch_fixture("torch") / "iter_0000030");
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch"), 30).kind, TorchKind::torch);
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("torch"), 31).kind, TorchKind::none);
  EXPECT_EQ(torch_checkpoint_kind(torch_fixture("hf_bin")).kind, TorchKind::none);
  const auto opened = open_torch_checkpoint(torch_fixture("torch"));
  EXPECT_EQ(opened.source->tensors().size(), 27u);
  EXPECT_THAT(error_of([] { open_torch_checkpoint(torch_fixture("hf_bin")); }),
              HasSubstr("hf_bin holds no checkpoint of Megatron"));
}

TEST(TorchKind, FoldersOfFsdpAreKnownAndRefused) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "iter_0000007");
  write_file(folder / "iter_0000007/.metadata", "x");
  write_file(folder / "latest_checkpointed_iteration.txt", "7");
  EXPECT_EQ(torch_checkpoint_kind(folder.path()).kind, TorchKind::dcp);
  EXPECT_THAT(error_of([&] { open_torch_checkpoint(folder.path()); }), HasSubstr("fsdp_dtensor"));
}

TEST(MegatronNames, AxesOfTensorParallelRanks) {
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_qkv.weight"), 0);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_proj.weight"), 1);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_proj.bias"), std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.mlp.linear_fc1.layer_norm_weight"),
            std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.mlp.experts.linear_fc2.weight11"), 1);
  EXPECT_EQ(tensor_parallel_axis("decoder.layers.3.self_attention.linear_q_down_proj.weight"),
            std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("embedding.word_embeddings.weight"), 0);
  EXPECT_EQ(tensor_parallel_axis("embedding.position_embeddings.weight"), std::nullopt);
  EXPECT_EQ(tensor_parallel_axis("output_layer.weight"), 0);
}

TEST(MegatronNames, AbsurdAxesAreRefused) {
  EXPECT_THAT(error_of([] {
                parts_of_key("decoder.layers.x", {int64_t{1} << 40, 0});
              }),
              HasSubstr("decoder.layers.x has 1099511627776 layers"));
  EXPECT_THAT(error_of([] { parts_of_key("decoder.layers.mlp.experts.experts.x", {2}); }),
              HasSubstr("should have 2 axes for layers and experts"));
}

}  // namespace
}  // namespace phx
