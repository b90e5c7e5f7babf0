#include "phalanx/train/same_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "phalanx/base/error.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/comm/thread_world.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SameCheckpoint, ANativeOneIsItsManifest) {
  const TempFolder folder;
  EXPECT_EQ(native_checksum(folder.path()), 0u) << "there is none";
  write_file(manifest_path(folder.path()), "one");
  const uint64_t one = native_checksum(folder.path());
  EXPECT_NE(one, 0u);
  write_file(folder / "shard_00000.safetensors", "its checksums are in the manifest");
  EXPECT_EQ(native_checksum(folder.path()), one);
  write_file(manifest_path(folder.path()), "two");
  EXPECT_NE(native_checksum(folder.path()), one);
}

TEST(SameCheckpoint, OfMegatronsTheFoldersOfRanksCountAndNoOthers) {
  const TempFolder folder;
  for (const char* inside : {"mp_rank_00", "saves"})
    std::filesystem::create_directory(folder / inside);
  write_file(folder / ".metadata", "description");
  write_file(folder / "mp_rank_00" / "model_optim_rng.pt", "1234");
  const uint64_t before = folder_checksum(folder.path());
  EXPECT_NE(before, 0u);
  write_file(folder / "saves" / "model.pt", "a run saves below what it began from");
  write_file(folder / "notes.txt", "for people");
  EXPECT_EQ(folder_checksum(folder.path()), before);
  write_file(folder / "mp_rank_00" / "model_optim_rng.pt", "12345");
  EXPECT_NE(folder_checksum(folder.path()), before) << "a size in a rank's folder";
  write_file(folder / "mp_rank_00" / "model_optim_rng.pt", "1234");
  EXPECT_EQ(folder_checksum(folder.path()), before);
  write_file(folder / ".metadata", "Description");
  EXPECT_NE(folder_checksum(folder.path()), before) << "what .metadata says";
}

// What each of three ranks says that found these numbers.
std::array<std::string, 3> said_by(const std::array<uint64_t, 3>& checksums) {
  RunConfig config = tiny_run();
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), 3);
  std::array<std::string, 3> said;
  run_thread_ranks(3, {}, [&](World& world) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(world, layout.mesh);
    const Session session(config, sources, runtime.device(), mesh);
    try {
      check_same_checkpoint(session, "/run/iter_0000007", checksums[size_t(world.rank())]);
    } catch (const Error& error) {
      said[size_t(world.rank())] = error.what();
    }
  });
  return said;
}

TEST(SameCheckpoint, EveryRankNamesWhoFoundWhat) {
  EXPECT_EQ(said_by({5, 5, 5}), (std::array<std::string, 3>{}));
  const auto said = said_by({5, 0, 5});
  EXPECT_EQ(said[0], said[1]);
  EXPECT_EQ(said[0], said[2]);
  EXPECT_THAT(said[0], AllOf(HasSubstr("the ranks do not find the same checkpoint at "
                                       "/run/iter_0000007"),
                             HasSubstr("nothing on rank 1"), HasSubstr("xxh3:5 on ranks 0 and 2"),
                             HasSubstr("hint: copy it")));
}

TEST(SameCheckpoint, NumbersAboveTheSignedRangeAreTold) {
  EXPECT_THAT(said_by({~uint64_t{0}, 1, 1})[2], HasSubstr("xxh3:18446744073709551615 on rank 0"));
}

}  // namespace
}  // namespace phx
