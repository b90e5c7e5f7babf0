#include "phalanx/checkpoint/native_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/loader.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/checkpoint/saver.h"
#include "support/gradients.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::all_bytes;
using phx::testing::CutStore;
using phx::testing::error_of;
using phx::testing::test_device;
using ::testing::HasSubstr;

std::vector<LocalBox> boxes(CutStore& cut) {
  const FlatRange all = cut.store.all();
  return boxes_of(cut.store, cut.states()[0], {&all, 1});
}

void save(const Path& folder, int64_t iteration, CutStore& cut, SaverOptions options = {}) {
  options.folder = folder;
  CheckpointSaver saver(options);
  saver.begin(iteration, boxes(cut), {{"note", "\"hello\""}});
  saver.wait();
}

TEST(NativeCheckpoint, GivesBackWhatWasSavedUnderEveryCut) {
  const TempFolder folder;
  CutStore saved(test_device(), 1);
  save(folder.path(), 12, saved);
  EXPECT_EQ(latest_checkpoint(folder.path()), 12);
  const NativeCheckpoint checkpoint(checkpoint_path(folder.path(), 12));
  EXPECT_EQ(checkpoint.iteration(), 12);
  EXPECT_EQ(checkpoint.info("note"), "\"hello\"");
  checkpoint.verify();
  for (int size : {1, 2, 4}) {
    for (int rank = 0; rank < size; ++rank) {
      CutStore loaded(test_device(), 99, rank, size), truth(test_device(), 1, rank, size);
      const LoadReport report = load_parameters(checkpoint, loaded.store, loaded.states());
      EXPECT_EQ(report.tensors, 4);
      EXPECT_EQ(to_values(loaded.store.weights()), to_values(truth.store.weights()));
    }
  }
}

TEST(NativeCheckpoint, IsAFileThatOtherReadersOfSafetensorsUnderstand) {
  const TempFolder folder;
  CutStore saved(test_device(), 1);
  save(folder.path(), 1, saved);
  const SafetensorsFile file(checkpoint_path(folder.path(), 1) / "shard_00000.safetensors");
  EXPECT_EQ(file.at("columns.weight").shape, (std::vector<int64_t>{5, 8}));
  const auto bytes = file.at("columns.weight").bytes;
  EXPECT_TRUE(std::ranges::equal(
      bytes, all_bytes(NativeCheckpoint(checkpoint_path(folder.path(), 1)))["columns.weight"]));
}

TEST(NativeCheckpoint, AFlippedBitAnywhereIsFoundAndItsFileNamed) {
  const TempFolder folder;
  CutStore saved(test_device(), 1);
  save(folder.path(), 1, saved);
  const Path path = checkpoint_path(folder.path(), 1);
  for (const char* name : {"manifest.json", "shard_00000.safetensors"}) {
    const std::string good = read_file(path / name);
    for (size_t at = 0; at < good.size(); at += 7) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ (1 << at % 8));
      std::ofstream(path / name, std::ios::binary) << bad;
      EXPECT_THAT(error_of([&] { NativeCheckpoint(path).verify(); }), HasSubstr(name)) << at;
    }
    std::ofstream(path / name, std::ios::binary) << good;
  }
  NativeCheckpoint(path).verify();
  // A load meets the damage as well, before anything is trained with it.
  const std::string good = read_file(path / "shard_00000.safetensors");
  std::string bad = good;
  bad[bad.size() - 30] ^= 1;
  std::ofstream(path / "shard_00000.safetensors", std::ios::binary) << bad;
  CutStore loaded(test_device(), 2);
  EXPECT_THAT(
      error_of([&] { load_parameters(NativeCheckpoint(path), loaded.store, loaded.states()); }),
      HasSubstr("shard_00000.safetensors is damaged: bytes from"));
}

TEST(NativeCheckpoint, ACutFileOrAMissingOneIsFoundWhenItIsOpened) {
  const TempFolder folder;
  CutStore saved(test_device(), 1);
  save(folder.path(), 1, saved);
  const Path path = checkpoint_path(folder.path(), 1), shard = path / "shard_00000.safetensors";
  const auto size = std::filesystem::file_size(shard);
  for (const uintmax_t left : {size - 1, size / 2, uintmax_t{0}}) {
    std::filesystem::resize_file(shard, left);
    EXPECT_THAT(error_of([&] { NativeCheckpoint{path}; }), HasSubstr(shard.string() + " has "));
  }
  std::filesystem::remove(shard);
  EXPECT_THAT(error_of([&] { NativeCheckpoint{path}; }),
              HasSubstr("cannot read " + shard.string()));
  std::filesystem::remove(manifest_path(path));
  EXPECT_THAT(error_of([&] { NativeCheckpoint{path}; }), HasSubstr("it has no manifest.json"));
}

TEST(NativeCheckpoint, TheNewestWholeOneIsFoundAndTheOthersAreNamed) {
  const TempFolder folder;
  for (int64_t iteration : {10, 20, 30}) {
    CutStore saved(test_device(), uint64_t(iteration));
    save(folder.path(), iteration, saved);
  }
  std::filesystem::resize_file(checkpoint_path(folder.path(), 30) / "shard_00000.safetensors", 100);
  std::vector<std::string> why_not;
  EXPECT_EQ(newest_valid_checkpoint(folder.path(), why_not), 20);
  ASSERT_EQ(why_not.size(), 1u);
  EXPECT_THAT(why_not[0], HasSubstr("iter_0000030/shard_00000.safetensors has 100 bytes"));
}

// Where names cannot be exchanged a machine may stop between the two renames of a commit.
TEST(NativeCheckpoint, TheNewestWholeOneMayBeOneThatWasAboutToBeReplaced) {
  const TempFolder folder;
  for (int64_t iteration : {10, 20}) {
    CutStore saved(test_device(), uint64_t(iteration));
    save(folder.path(), iteration, saved);
  }
  const Path path = checkpoint_path(folder.path(), 20);
  std::filesystem::rename(path, path.string() + ".old");
  EXPECT_EQ(checkpoints_in(folder.path()), (std::vector<int64_t>{20, 10}));
  std::vector<std::string> why_not;
  EXPECT_EQ(newest_valid_checkpoint(folder.path(), why_not), 20);
  EXPECT_TRUE(why_not.empty());
  CutStore truth(test_device(), 20);
  CutStore loaded(test_device(), 1);
  load_parameters(NativeCheckpoint(find_checkpoint(folder.path(), 20)), loaded.store,
                  loaded.states());
  EXPECT_EQ(to_values(loaded.store.weights()), to_values(truth.store.weights()));

  const Path shard = find_checkpoint(folder.path(), 20) / "shard_00000.safetensors";
  std::filesystem::resize_file(shard, 100);
  EXPECT_EQ(newest_valid_checkpoint(folder.path(), why_not), 10);
  ASSERT_EQ(why_not.size(), 1u);
  EXPECT_THAT(why_not[0], HasSubstr("iter_0000020.old/shard_00000.safetensors has 100 bytes"));
}

TEST(NativeCheckpoint, ARankReadsItsOwnRowsAndAtMostTwoBlocksBesideThem) {
  class Cut : public Module {
   public:
    Cut(int64_t rank, int64_t size)
        : weight_(
              {.global_shape = {4001, 1000},
               .local_shape = {4001 / size + 1, 1000},
               .pieces = pieces_of(
                   {{4001 * rank / size, 0, 4001 * (rank + 1) / size - 4001 * rank / size}}, 1000),
               .init = Init::normal(1)}) {
      add_parameter("weight", weight_);
    }

   private:
    Parameter weight_;
  };
  const TempFolder folder;
  Cut one(0, 1);
  ParameterStore saved(one, test_device(), {.gradients = false});
  const FlatState from{"", saved.weights()};
  const FlatRange all = saved.all();
  CheckpointSaver saver({.folder = folder.path()});
  saver.begin(1, boxes_of(saved, from, {&all, 1}), {});
  saver.wait();
  for (int64_t rank = 0; rank < 4; ++rank) {
    Cut quarter(rank, 4);
    ParameterStore store(quarter, test_device(), {.seed = 5, .gradients = false});
    const FlatState to{"", store.weights()};
    const NativeCheckpoint checkpoint(checkpoint_path(folder.path(), 1));
    const LoadReport report = load_parameters(checkpoint, store, {&to, 1});
    EXPECT_NEAR(double(report.bytes), 4001 * 1000, 4000);  // a quarter of 4-byte elements
    EXPECT_LE(checkpoint.bytes_read(), report.bytes + 2 * kBlockBytes);
    ParameterStore truth(quarter, test_device(), {.gradients = false});
    EXPECT_EQ(to_values(store.weights()), to_values(truth.weights()));
  }
}

}  // namespace
}  // namespace phx
