#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/checkpoint/torch/pickle.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TorchDistMetadata two_tensors() {
  TorchDistMetadata metadata;
  metadata.tensors["a"] = {
      {DType::bf16, {2, 3}},
      {{{{0, 0}, {1, 3}}, {"__0_0.distcp", 10, 20}}, {{{1, 0}, {1, 3}}, {"__1_0.distcp", 30, 40}}}};
  metadata.tensors["b"] = {{DType::i64, {5}}, {{{{0}, {5}}, {"__0_0.distcp", 50, 60}}}};
  metadata.objects["common"] = {"__0_1.distcp", 0, 7};
  metadata.objects["again"] = {"__0_1.distcp", 0, 7};  // the same place
  return metadata;
}

TEST(TorchDistMetadataWriter, WhatIsWrittenIsReadAgain) {
  const TorchDistMetadata before = two_tensors();
  const std::string bytes = pickled_metadata(before);
  const TorchDistMetadata after = TorchDistMetadata::parse(as_bytes(bytes), "x");
  ASSERT_EQ(after.tensors.size(), 2u);
  for (const auto& [name, tensor] : before.tensors) {
    const TorchDistTensor& read = after.tensors.at(name);
    EXPECT_EQ(read.info, tensor.info);
    ASSERT_EQ(read.chunks.size(), tensor.chunks.size());
    for (size_t i = 0; i < read.chunks.size(); ++i) {
      EXPECT_EQ(read.chunks[i].box, tensor.chunks[i].box);
      EXPECT_EQ(read.chunks[i].place.file, tensor.chunks[i].place.file);
      EXPECT_EQ(read.chunks[i].place.offset, tensor.chunks[i].place.offset);
      EXPECT_EQ(read.chunks[i].place.length, tensor.chunks[i].place.length);
    }
  }
  ASSERT_EQ(after.objects.size(), 2u);
  EXPECT_EQ(after.objects.at("again").file, "__0_1.distcp");
  EXPECT_EQ(after.objects.at("common").length, 7);
}

// What PyTorch's own reader looks for besides: the index of a chunk, the path of every key.
TEST(TorchDistMetadataWriter, EveryKeyHasAPathAndEveryChunkAnIndex) {
  const std::string bytes = pickled_metadata(two_tensors());
  const PickleTree tree(as_bytes(bytes), "x");
  const PickleValue* paths = tree.root().find("planner_data");
  ASSERT_NE(paths, nullptr);
  EXPECT_EQ(paths->items.size(), 2 * 4u);
  EXPECT_EQ(paths->find("a")->items.at(0)->text, "a");
  std::vector<int64_t> indices;
  const PickleValue* places = tree.root().find("storage_data");
  ASSERT_NE(places, nullptr);
  for (size_t i = 0; i < places->items.size(); i += 2)
    if (places->items[i]->find("fqn")->text == "a")
      indices.push_back(*places->items[i]->find("index")->as_integer());
  EXPECT_EQ(indices, (std::vector<int64_t>{0, 1}));
}

TEST(TorchDistMetadataWriter, ATypeThatTorchHasNoStorageForIsRefused) {
  TorchDistMetadata metadata = two_tensors();
  metadata.tensors.at("b").info.dtype = DType::f8e4m3;
  EXPECT_THAT(error_of([&] { pickled_metadata(metadata); }),
              HasSubstr("tensors of f8e4m3 are not written"));
}

}  // namespace
}  // namespace phx
