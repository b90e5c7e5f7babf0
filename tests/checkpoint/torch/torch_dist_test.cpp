#include "phalanx/checkpoint/torch/torch_dist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch/torch_names.h"
#include "checkpoint/torch_fixture.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

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

TEST(TorchDist, RowsOfPaddingAreNotShown) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist"), {.vocab_size = 22});
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight",
                           "optimizer.exp_avg.output_layer.weight"})
    EXPECT_EQ(checkpoint.tensors().at(name).shape, (Dims{22, 8})) << name;
  expect_fixture(checkpoint, "output_layer.weight", "output_layer.weight");
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

}  // namespace
}  // namespace phx
