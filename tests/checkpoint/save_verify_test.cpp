// --save-verify: a checkpoint counts when the disk gives back what was written.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"
#include "phalanx/checkpoint/shard_reader.h"
#include "phalanx/comm/thread_world.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::CutStore;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Loses a bit on the way to the platter, and says that all is well.
class LyingDisk : public Disk {
 public:
  std::string victim;  // files whose name has this

  int open(const char* path, int flags, mode_t mode) override {
    const int descriptor = Disk::open(path, flags, mode);
    std::erase(victims_, descriptor);  // numbers are used again
    if (!victim.empty() && std::string(path).find(victim) != std::string::npos)
      victims_.push_back(descriptor);
    return descriptor;
  }
  ssize_t write_at(int descriptor, const void* data, size_t bytes, off_t offset) override {
    return damaged(descriptor, data, bytes,
                   [&](const void* d) { return Disk::write_at(descriptor, d, bytes, offset); });
  }
  ssize_t write(int descriptor, const void* data, size_t bytes) override {
    return damaged(descriptor, data, bytes,
                   [&](const void* d) { return Disk::write(descriptor, d, bytes); });
  }

 private:
  template <class Write>
  ssize_t damaged(int descriptor, const void* data, size_t bytes, const Write& write) {
    const bool hit = std::ranges::find(victims_, descriptor) != victims_.end();
    if (!hit || bytes == 0) return write(data);
    void* copy = nullptr;  // aligned as the original, which may go past the page cache
    EXPECT_EQ(::posix_memalign(&copy, 4096, bytes), 0);
    std::memcpy(copy, data, bytes);
    static_cast<char*>(copy)[bytes - 1] ^= 1;
    const ssize_t n = write(copy);
    std::free(copy);
    return n;
  }
  std::vector<int> victims_;
};

void save(const Path& folder, int64_t iteration, Disk& disk, bool verify,
          SaveMode mode = SaveMode::waiting) {
  Runtime runtime({.threads = 1});
  CutStore cut(runtime.device(), 1);
  const FlatRange all = cut.store.all();
  CheckpointSaver saver({.folder = folder, .verify = verify, .disk = &disk});
  saver.begin(
      iteration,
      boxes_of(cut.store, cut.states()[0], {&all, 1}, [](const Parameter&) { return true; }), {},
      mode);
  saver.wait();
}

TEST(SaveVerify, ABitThatTheDiskLosesIsFoundAndTheTrackerStays) {
  for (const SaveMode mode : {SaveMode::waiting, SaveMode::background}) {
    const TempFolder folder;
    save(folder.path(), 1, Disk::real(), true, mode);
    LyingDisk lying;
    lying.victim = "shard_00000";
    EXPECT_THAT(error_of([&] { save(folder.path(), 2, lying, true, mode); }),
                AllOf(HasSubstr("--save-verify: the disk does not give back what was written"),
                      HasSubstr("shard_00000.safetensors is damaged"),
                      HasSubstr("the checkpoint of iteration 2 does not count; the newest is still "
                                "that of iteration 1"),
                      HasSubstr("hint: ")));
    EXPECT_EQ(latest_checkpoint(folder.path()), 1);
    EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{1});
    NativeCheckpoint(checkpoint_path(folder.path(), 1)).verify();
  }
}

TEST(SaveVerify, ADamagedManifestIsFound) {
  const TempFolder folder;
  LyingDisk lying;
  lying.victim = "manifest.json";
  EXPECT_THAT(
      error_of([&] { save(folder.path(), 2, lying, true); }),
      AllOf(HasSubstr("manifest.json is not what was written"), HasSubstr("there is none yet")));
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
}

TEST(SaveVerify, WithoutItNobodyNoticesBeforeTheFileIsRead) {
  const TempFolder folder;
  LyingDisk lying;
  lying.victim = "shard_00000";
  save(folder.path(), 2, lying, false);
  EXPECT_EQ(latest_checkpoint(folder.path()), 2);
  EXPECT_THAT(error_of([&] { NativeCheckpoint(checkpoint_path(folder.path(), 2)).verify(); }),
              HasSubstr("is damaged"));
}

TEST(SaveVerify, OneRankOfSeveralFindsItAndAllHearOfIt) {
  const TempFolder folder;
  const std::string message = error_of([&] {
    run_thread_ranks(2, {}, [&](World& world) {
      Runtime runtime({.threads = 1});
      const auto ranks = world.group({0, 1}, "world");
      CutStore cut(runtime.device(), 1, world.rank(), 2);
      const FlatRange all = cut.store.all();
      LyingDisk disk;
      if (world.rank() == 1) disk.victim = "shard_00001";
      CheckpointSaver saver(
          {.folder = folder.path(), .world = ranks.get(), .verify = true, .disk = &disk});
      saver.begin(1,
                  boxes_of(cut.store, cut.states()[0], {&all, 1},
                           [&](const Parameter& p) {
                             return world.rank() == 0 || p.name() != "vector.bias";
                           }),
                  {});
      saver.wait();
    });
  });
  EXPECT_THAT(message, HasSubstr("shard_00001.safetensors is damaged"));
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
}

// How many of a file's pages are in the page cache.
int resident_pages(const Path& path) {
  const FileHandle file(::open(path.c_str(), O_RDONLY));
  const size_t bytes = std::filesystem::file_size(path), pages = (bytes + 4095) / 4096;
  void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  std::vector<unsigned char> in(pages);
  EXPECT_EQ(::mincore(memory, bytes, in.data()), 0);
  ::munmap(memory, bytes);
  return int(std::ranges::count_if(in, [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(SaveVerify, WhatIsReadBackComesFromTheDiskAndNotFromThePageCache) {
  const TempFolder folder;
  struct statfs info {};
  ASSERT_EQ(::statfs(folder.path().c_str(), &info), 0);
  if (info.f_type == TMPFS_MAGIC) GTEST_SKIP() << "files of a tmpfs are in memory only";
  write_file(folder / "file", std::string(1 << 20, 'x'));
  ASSERT_GT(resident_pages(folder / "file"), 0);
  drop_from_page_cache(folder / "file");
  EXPECT_EQ(resident_pages(folder / "file"), 0);
}

}  // namespace
}  // namespace phx
