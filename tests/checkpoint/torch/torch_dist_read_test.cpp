#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/edited_torch_dist.h"
#include "checkpoint/torch/torch_names.h"
#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/zip.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TorchDistRead, AFlippedBitIsAnErrorThatNamesTheFileAndTheEntry) {
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

TEST(TorchDistRead, AChunkOfAnotherShapeThanItsDescriptionIsRefused) {
  const TempFolder folder;
  EditedTorchDist edited(torch_fixture("torch_dist"), folder / "x");
  edited.replace("decoder.final_layernorm.weight", "output_layer.weight");
  edited.save();
  const TorchDistCheckpoint checkpoint(folder / "x");
  EXPECT_THAT(
      error_of([&] { read_numbers(checkpoint, "decoder.final_layernorm.weight"); }),
      HasSubstr("decoder.final_layernorm.weight: the chunk at [0] should be bf16 [8], but"));
}

TEST(TorchDistRead, BoxesBeyondATensorAndOtherNamesAreRefused) {
  const TorchDistCheckpoint checkpoint(torch_fixture("torch_dist"));
  std::vector<std::byte> out(2);
  EXPECT_THAT(error_of([&] {
                checkpoint.read("no.such", {{0}, {1}}, out);
              }),
              HasSubstr("has no tensor no.such among its 60"));
  EXPECT_THAT(error_of([&] {
                checkpoint.read("decoder.final_layernorm.weight", {{8}, {1}}, out);
              }),
              HasSubstr("is [8]; the box of [1] at [8] lies beyond it"));
}

}  // namespace
}  // namespace phx
