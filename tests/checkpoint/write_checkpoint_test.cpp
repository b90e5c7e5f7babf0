#include "phalanx/checkpoint/write_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_model.h"
#include "checkpoint/memory_source.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::all_bytes;
using phx::testing::FaultyDisk;
using ::testing::HasSubstr;

// Any box of a tensor of three axes, from pieces that cut it elsewhere.
TEST(WriteCheckpoint, WritesAnySourceInFilesOfABoundedSizeAndReadsAnyBox) {
  class Counting : public TensorSource {
   public:
    Counting() { infos_["a"] = {DType::i32, {3, 4, 5}}, infos_["b"] = {DType::u8, {}}; }
    const TensorInfos& tensors() const override { return infos_; }
    void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
      if (name == "b") {
        out[0] = std::byte{42};
        return;
      }
      auto* to = reinterpret_cast<int32_t*>(out.data());
      for (int64_t i = 0; i < box.size[0]; ++i)
        for (int64_t j = 0; j < box.size[1]; ++j)
          for (int64_t k = 0; k < box.size[2]; ++k)
            *to++ = int32_t((box.begin[0] + i) * 100 + (box.begin[1] + j) * 10 + box.begin[2] + k);
    }
    std::string description() const override { return "numbers"; }

   private:
    TensorInfos infos_;
  };
  const TempFolder folder;
  const Counting source;
  write_checkpoint(folder.path(), 3, source, {{"state", "{}"}}, {.shard_bytes = 1});
  const NativeCheckpoint checkpoint(checkpoint_path(folder.path(), 3));
  EXPECT_EQ(checkpoint.manifest().files.size(), 2u);
  EXPECT_EQ(all_bytes(checkpoint), all_bytes(source));
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j)
      for (int64_t k = 0; k < 5; ++k) {
        const Box box{{i, j, k}, {3 - i, 4 - j, 5 - k}};
        std::vector<std::byte> a(size_t(box.numel() * 4)), b(a.size());
        source.read("a", box, a);
        checkpoint.read("a", box, b);
        EXPECT_EQ(a, b) << i << j << k;
      }
}

TensorsInMemory three_tensors() {
  TensorsInMemory source;
  source.set("a", {DType::u8, {60}}, std::vector<std::byte>(60, std::byte{1}));
  source.set("b", {DType::u8, {60}}, std::vector<std::byte>(60, std::byte{2}));
  source.set("c", {DType::u8, {0, 4}}, {});
  return source;
}

TEST(WriteCheckpoint, AFileEndsWhenItHasItsBytes) {
  const TempFolder folder;
  write_checkpoint(folder.path(), 1, three_tensors(), {}, {.shard_bytes = 100});
  const NativeCheckpoint checkpoint(checkpoint_path(folder.path(), 1));
  ASSERT_EQ(checkpoint.manifest().files.size(), 2u);  // a and b, then c
  EXPECT_EQ(checkpoint.manifest().files[0].name, "shard_00000.safetensors");
  EXPECT_EQ(all_bytes(checkpoint), all_bytes(three_tensors()));
  checkpoint.verify();
}

TEST(WriteCheckpoint, ASourceThatFailsLeavesWhatWasThere) {
  class Broken : public TensorsInMemory {
   public:
    using TensorsInMemory::TensorsInMemory;
    void read(const std::string& name, const Box& box, std::span<std::byte> out) const override {
      if (name == "b") throw_error("b cannot be read");
      TensorsInMemory::read(name, box, out);
    }
  };
  const TempFolder folder;
  write_checkpoint(folder.path(), 1, three_tensors(), {});
  const Broken broken(three_tensors());
  EXPECT_EQ(error_of([&] { write_checkpoint(folder.path(), 2, broken, {}); }), "b cannot be read");
  EXPECT_EQ(latest_checkpoint(folder.path()), 1);
  EXPECT_EQ(checkpoints_in(folder.path()), std::vector<int64_t>{1});
}

TEST(WriteCheckpoint, AFullDiskIsAnErrorAndNoCheckpoint) {
  const TempFolder folder;
  FaultyDisk full;
  full.error = ENOSPC;
  full.only_writes = true;
  full.fail_from = 1;
  EXPECT_THAT(
      error_of([&] { write_checkpoint(folder.path(), 3, three_tensors(), {}, {.disk = &full}); }),
      HasSubstr("the disk is full"));
  EXPECT_EQ(latest_checkpoint(folder.path()), std::nullopt);
  EXPECT_TRUE(checkpoints_in(folder.path()).empty());
}

}  // namespace
}  // namespace phx
