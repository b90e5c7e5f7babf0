#include "phalanx/checkpoint/torch/torch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/torch/torch_names.h"
#include "checkpoint/torch/torch_saved.h"
#include "checkpoint/torch_fixture.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

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

// A weight of 1e11 elements over 6 floats would take 400 GB.
TEST(TorchFolder, WeightsLargerThanTheirStorageAreRefused) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "mp_rank_00");
  const Path path = folder / "mp_rank_00/model_optim_rng.pt";
  const auto open = [&](std::vector<int64_t> sizes, std::vector<int64_t> strides) {
    write_file(path, tensor_file(std::move(sizes), std::move(strides), 0, "FloatStorage", "0",
                                 /*model=*/true));
    TorchFolder source(folder.path());
  };
  EXPECT_THAT(error_of([&] {
                open({1, 100'000'000'000}, {0, 0});
              }),
              HasSubstr("x is F32 [1, 100000000000], but its storage has 1 elements"));
  EXPECT_NO_THROW(open({3, 2}, {1, 3}));
}

TEST(TorchFolder, ExpertParallelFoldersAndForeignNamesAreToldApart) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "mp_rank_xx");
  std::filesystem::create_directories(folder / "mp_rank_-1");
  EXPECT_FALSE(TorchFolder::is_one(folder.path()));
  EXPECT_THAT(error_of([&] { TorchFolder source(folder.path()); }),
              HasSubstr("has no folder mp_rank_00"));
  std::filesystem::create_directories(folder / "mp_rank_00_000_001");
  EXPECT_TRUE(TorchFolder::is_one(folder.path()));
  EXPECT_THAT(error_of([&] { TorchFolder source(folder.path()); }),
              HasSubstr("was saved with expert parallelism"));
}

TEST(TorchFolder, AFileWithoutAModelIsNamed) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "mp_rank_00");
  const Path path = folder / "mp_rank_00/model_optim_rng.pt";
  write_file(path, tensor_file({3, 2}, {2, 1}, 0));
  EXPECT_EQ(error_of([&] { TorchFolder source(folder.path()); }),
            path.string() + " has no 'model'");
}

TEST(TorchFolder, ATensorThatIsNotThereIsNamed) {
  const TorchFolder folder(torch_fixture("torch") / "iter_0000030");
  std::vector<std::byte> out(4);
  EXPECT_THAT(error_of([&] {
                folder.read("decoder.layers.9.x", {{0}, {1}}, out);
              }),
              HasSubstr("has no tensor decoder.layers.9.x among its 27"));
}

}  // namespace
}  // namespace phx
