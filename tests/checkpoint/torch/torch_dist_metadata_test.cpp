#include "phalanx/checkpoint/torch/torch_dist_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/checkpoint/torch/pickle_writer.h"
#include "phalanx/checkpoint/torch/torch_dist_metadata_writer.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TorchDistMetadata parsed(const TorchDistMetadata& metadata) {
  const std::string bytes = pickled_metadata(metadata);
  return TorchDistMetadata::parse(as_bytes(bytes), "x/.metadata");
}

// One f32 tensor "w" of [4, 4] in these chunks.
TorchDistMetadata with_chunks(const std::vector<Box>& boxes) {
  TorchDistMetadata metadata;
  TorchDistTensor& tensor = metadata.tensors["w"];
  tensor.info = {DType::f32, {4, 4}};
  for (const Box& box : boxes)
    tensor.chunks.push_back({box, {"__0_0.distcp", int64_t(100 * tensor.chunks.size()), 64}});
  return metadata;
}

std::string error_with(const std::vector<Box>& boxes) {
  return error_of([&] { parsed(with_chunks(boxes)); });
}

TEST(TorchDistMetadata, ChunksHoldEveryElementOnce) {
  const auto good = parsed(with_chunks({{{0, 0}, {4, 1}}, {{0, 1}, {2, 3}}, {{2, 1}, {2, 3}}}));
  ASSERT_EQ(good.tensors.at("w").chunks.size(), 3u);
  EXPECT_EQ(good.tensors.at("w").chunks[1].place.offset, 100);

  EXPECT_THAT(error_with({{{0, 0}, {3, 4}}}),
              HasSubstr("x/.metadata: the tensor w: its chunks hold 12 of 16 elements: the "
                        "checkpoint is incomplete"));
  EXPECT_THAT(error_with({{{0, 0}, {4, 4}}, {{1, 1}, {1, 1}}}), HasSubstr("its chunks overlap"));
  // As many elements as there are, but one of them twice and one never.
  EXPECT_THAT(error_with({{{0, 0}, {2, 4}}, {{1, 0}, {2, 4}}}),
              HasSubstr("its chunks at [0, 0] and [1, 0] overlap"));
  EXPECT_THAT(error_with({{{2, 0}, {3, 4}}}), HasSubstr("the box of [3, 4] at [2, 0] lies beyond"));
}

TEST(TorchDistMetadata, FilesLieInTheFolderItself) {
  for (const char* file : {"../x", "a/b", "..", ""}) {
    auto metadata = with_chunks({{{0, 0}, {4, 4}}});
    metadata.tensors.at("w").chunks[0].place.file = file;
    EXPECT_THAT(error_of([&] { parsed(metadata); }), HasSubstr("is no file of this folder"))
        << file;
  }
  auto metadata = with_chunks({{{0, 0}, {4, 4}}});
  metadata.tensors.at("w").chunks[0].place.offset = -1;
  EXPECT_THAT(error_of([&] { parsed(metadata); }), HasSubstr("without file, offset and length"));
}

TEST(TorchDistMetadata, SizesThatNoMachineHoldsAreRefused) {
  TorchDistMetadata metadata;
  metadata.tensors["w"] = {{DType::f32, {int64_t{1} << 40, int64_t{1} << 40}}, {}};
  EXPECT_THAT(error_of([&] { parsed(metadata); }), HasSubstr("which is too large"));
}

TEST(TorchDistMetadata, ATensorOfNoAxesHasOneChunk) {
  TorchDistMetadata metadata;
  metadata.tensors["step"] = {{DType::i64, {}}, {{{{}, {}}, {"__0_0.distcp", 0, 8}}}};
  EXPECT_EQ(parsed(metadata).tensors.at("step").info.shape, Dims{});
}

TEST(TorchDistMetadata, AnotherPickleIsNoMetadata) {
  PickleWriter writer;
  writer.object("torch.distributed.checkpoint.metadata", "Metadata", [&] {
    writer.dict([&] { writer.text("state_dict_metadata"), writer.integer(1); });
  });
  const std::string bytes = writer.finish();
  EXPECT_EQ(error_of([&] { TorchDistMetadata::parse(as_bytes(bytes), "x/.metadata"); }),
            "x/.metadata: 'state_dict_metadata' is the number 1");
  PickleWriter none;
  none.none();
  const std::string nothing = none.finish();
  EXPECT_EQ(error_of([&] { TorchDistMetadata::parse(as_bytes(nothing), "x/.metadata"); }),
            "x/.metadata: None has no 'state_dict_metadata'");
}

}  // namespace
}  // namespace phx
