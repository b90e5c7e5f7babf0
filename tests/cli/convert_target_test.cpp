#include "phalanx/cli/convert_target.h"

#include <gtest/gtest.h>

#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(ConvertTarget, AnythingButCheckpointsMayBeThere) {
  const TempFolder folder;
  check_holds_no_checkpoint("--native", folder / "new");
  check_holds_no_checkpoint("--native", folder.path());
  write_file(folder / "notes.txt", "");
  make_folder(folder / "iter_0000005.tmp");  // a conversion was stopped
  check_holds_no_checkpoint("--native", folder.path());
}

TEST(ConvertTarget, CheckpointsAndTheirTrackerAreRefusedByName) {
  for (const char* name : {"iter_0000005", "latest_checkpointed_iteration.txt"}) {
    const TempFolder folder;
    write_file(folder / name, "");
    EXPECT_EQ(error_of([&] { check_holds_no_checkpoint("--native", folder.path()); }),
              "--native " + folder.path().string() + " holds checkpoints already (" + name +
                  "): a conversion would change which of them is the newest\n  hint: give another "
                  "folder, or remove this one if it is not needed");
  }
}

TEST(ConvertTarget, AFileIsNoFolder) {
  const TempFolder folder;
  write_file(folder / "file", "");
  EXPECT_EQ(error_of([&] { check_holds_no_checkpoint("--hf", folder / "file"); }),
            "--hf " + (folder / "file").string() +
                " is no folder\n  hint: give the name of one that is new or empty");
}

}  // namespace
}  // namespace phx
