// A lost latest_checkpointed_iteration.txt: the checkpoints beside it still count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_model.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "phalanx/checkpoint/native_checkpoint.h"
#include "phalanx/checkpoint/saver.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::CutStore;
using ::testing::AllOf;
using ::testing::HasSubstr;

void save(const Path& folder, int64_t iteration) {
  Runtime runtime({.threads = 1});
  CutStore cut(runtime.device(), 1);
  const FlatRange all = cut.store.all();
  CheckpointSaver saver({.folder = folder});
  saver.begin(
      iteration,
      boxes_of(cut.store, cut.states()[0], {&all, 1}, [](const Parameter&) { return true; }), {});
  saver.wait();
}

const char* const kTracker = "latest_checkpointed_iteration.txt";

TEST(MissingTracker, TheNewestCompleteCheckpointIsUsedAndThatIsSaid) {
  const TempFolder folder;
  for (const int64_t iteration : {5, 10}) save(folder.path(), iteration);
  EXPECT_EQ(checkpoint_to_load(folder.path())->warning, "")
      << "with a tracker there is nothing to say";
  std::filesystem::remove(folder / kTracker);
  const auto found = checkpoint_to_load(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->iteration, 10);
  EXPECT_THAT(found->warning, HasSubstr("has no latest_checkpointed_iteration.txt; the newest "
                                        "complete checkpoint there is used: iteration 10"));
}

TEST(MissingTracker, ACheckpointThatIsNotCompleteIsPassedOverAndNamed) {
  const TempFolder folder;
  for (const int64_t iteration : {5, 10}) save(folder.path(), iteration);
  std::filesystem::remove(folder / kTracker);
  std::filesystem::resize_file(checkpoint_path(folder.path(), 10) / "shard_00000.safetensors", 100);
  const auto found = checkpoint_to_load(folder.path());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->iteration, 5);
  EXPECT_THAT(found->warning, HasSubstr("iter_0000010/shard_00000.safetensors has 100 bytes"));
}

TEST(MissingTracker, NoCompleteCheckpointIsAnErrorAndNotAFreshStart) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000010");
  EXPECT_THAT(error_of([&] { checkpoint_to_load(folder.path()); }),
              AllOf(HasSubstr("none of its 1 checkpoints is complete"), HasSubstr("hint: ")));
}

TEST(MissingTracker, ACheckpointOfMegatronIsNamedAndNotAFreshStart) {
  const TempFolder folder;
  std::filesystem::copy(Path(PHX_TEST_DATA) / "megatron/gpt2_full/iter_0000003",
                        folder / "iter_0000003");
  EXPECT_THAT(error_of([&] { checkpoint_to_load(folder.path()); }),
              AllOf(HasSubstr("has no latest_checkpointed_iteration.txt"),
                    HasSubstr("hint: --ckpt-step 3 loads iter_0000003, which Megatron wrote "
                              "(torch_dist)")));
}

TEST(MissingTracker, AnEmptyFolderHasNothing) {
  const TempFolder folder;
  EXPECT_FALSE(checkpoint_to_load(folder.path()));
  EXPECT_FALSE(checkpoint_to_load(folder / "nowhere"));
}

TEST(MissingTracker, ATrackerThatNamesAMissingCheckpointIsAnErrorWithTheWayOut) {
  const TempFolder folder;
  save(folder.path(), 5);
  write_file(folder / kTracker, "77");
  EXPECT_THAT(error_of([&] { checkpoint_to_load(folder.path()); }),
              AllOf(HasSubstr("names iteration 77, but iter_0000077 is not there"),
                    HasSubstr("--ckpt-step 5, or --load-newest-valid")));
  write_file(folder / kTracker, "");
  EXPECT_THAT(error_of([&] { checkpoint_to_load(folder.path()); }),
              AllOf(HasSubstr("should hold an iteration's number"), HasSubstr("hint: ")));
}

}  // namespace
}  // namespace phx
