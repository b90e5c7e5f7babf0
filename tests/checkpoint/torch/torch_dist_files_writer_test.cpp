#include "phalanx/checkpoint/torch/torch_dist_files_writer.h"

#include <gtest/gtest.h>

#include "checkpoint/torch_fixture.h"
#include "phalanx/checkpoint/torch/torch_archive.h"
#include "phalanx/checkpoint/torch/torch_dist.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(TorchDistFilesWriter, RowsBeyondABoxAreZeros) {
  const TempFolder folder;
  const TorchDistCheckpoint source(torch_fixture("torch_dist"));
  const std::string name = "embedding.word_embeddings.weight";
  const TensorInfo whole = source.tensors().at(name);
  const Box box{{1, 0}, {2, whole.shape[1]}};
  TorchDistFilesWriter writer(folder.path(), 1 << 20);
  const TorchDistPlace place = writer.write(source, name, box, {whole.dtype, {5, whole.shape[1]}});
  writer.close();
  const MappedFile file(folder / place.file);
  const TorchArchive archive(file.bytes().subspan(size_t(place.offset), size_t(place.length)), "x");
  const TorchTensor tensor = archive.tensor(archive.root(), name);
  EXPECT_EQ(tensor.info.shape, Dims({5, whole.shape[1]}));
  std::vector<std::byte> wanted(size_t(box.numel() * size_of(whole.dtype)));
  source.read(name, box, wanted);
  ASSERT_EQ(tensor.bytes.size(), wanted.size() * 5 / 2);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), tensor.bytes.begin()));
  for (size_t i = wanted.size(); i < tensor.bytes.size(); ++i)
    ASSERT_EQ(tensor.bytes[i], std::byte{0});
}

TEST(TorchDistFilesWriter, AFullFileIsFollowedByAnother) {
  const TempFolder folder;
  TorchDistFilesWriter writer(folder.path(), 10);
  const TorchDistPlace first = writer.write("0123456789"), second = writer.write("ab");
  const TorchDistPlace third = writer.write("c");
  writer.close();
  EXPECT_EQ(first.file, "__0_0.distcp");
  EXPECT_EQ(second.file, "__0_1.distcp");
  EXPECT_EQ(third.offset, 2);
  EXPECT_EQ(read_file(folder / "__0_1.distcp"), "abc");
}

}  // namespace
}  // namespace phx
