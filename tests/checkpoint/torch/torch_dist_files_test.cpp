#include "phalanx/checkpoint/torch/torch_dist_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/json.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "phalanx/checkpoint/torch/torch_dist_files_writer.h"
#include "phalanx/checkpoint/torch/torch_object.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

TEST(TorchDistFiles, ABoxIsPutTogetherFromChunks) {
  const TempFolder folder;
  const TorchDistCheckpoint source(torch_fixture("torch_dist"));
  const std::string name = "embedding.word_embeddings.weight";
  const TensorInfo whole = source.tensors().at(name);
  const int64_t rows = whole.shape[0], columns = whole.shape[1], cut = rows / 3;
  TorchDistFilesWriter writer(folder.path(), /*file_bytes=*/1);  // each chunk in a file of its own
  TorchDistTensor tensor{whole, {}};
  for (const auto& [begin, count] : {std::pair(int64_t{0}, cut), std::pair(cut, rows - cut)}) {
    const Box box{{begin, 0}, {count, columns}};
    tensor.chunks.push_back({box, writer.write(source, name, box, {whole.dtype, box.size})});
  }
  writer.close();
  EXPECT_NE(tensor.chunks[0].place.file, tensor.chunks[1].place.file);
  TorchDistFiles files(folder.path());
  for (const TorchDistChunk& chunk : tensor.chunks) files.open(name, chunk.place);
  const Box box{{cut - 1, 1}, {3, columns - 2}};
  std::vector<std::byte> wanted(size_t(box.numel() * size_of(whole.dtype))), found(wanted.size());
  source.read(name, box, wanted);
  files.copy(name, tensor, box, found);
  EXPECT_EQ(found, wanted);
}

TEST(TorchDistFiles, ObjectsComeBackAndPlacesBeyondAFileAreNamed) {
  const TempFolder folder;
  TorchDistFilesWriter writer(folder.path(), 1 << 20);
  const TorchDistPlace place = writer.write(saved_object(nlohmann::json(7.5)));
  writer.close();
  TorchDistFiles files(folder.path());
  files.open("lr", place);
  const TorchArchive archive = files.archive_at("lr", place);
  EXPECT_EQ(archive.number(archive.root()), 7.5);
  EXPECT_THAT(archive.where(), HasSubstr(place.file + ": lr"));
  EXPECT_THAT(error_of([&] {
                files.open("lr", {place.file, 1, place.length});
              }),
              HasSubstr("but lr should be"));
}

}  // namespace
}  // namespace phx
