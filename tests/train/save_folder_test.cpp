#include "phalanx/train/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TrainConfig into(const Path& save, const std::string& load = "") {
  TrainConfig train;
  train.save = save;
  train.load = load;
  return train;
}

TEST(SaveFolder, AUsedFolderIsRefusedUnlessTheRunGoesOnFromIt) {
  const TempFolder folder, other;
  check_save_folder(into(folder.path()));
  check_save_folder(into(folder / "not there yet"));
  for (const char* name : {"iter_0000005", "iter_0000010"})
    std::filesystem::create_directories(folder / name);
  EXPECT_THAT(error_of([&] { check_save_folder(into(folder.path())); }),
              AllOf(HasSubstr("holds the checkpoints of another run (2, the newest of iteration "
                              "10), but there is no --load"),
                    HasSubstr("--load " + folder.path().string() + " goes on from there"),
                    HasSubstr("--save-into-used-folder begins anew")));
  EXPECT_THAT(error_of([&] { check_save_folder(into(folder.path(), other.path())); }),
              HasSubstr("but --load is " + other.path().string()));
  check_save_folder(into(folder.path(), folder.path()));
  check_save_folder(into(folder.path(), (folder / ".").string()));
}

TEST(SaveFolder, FinetuningInItsOwnFolderWouldBeginAnewOverIt) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000005");
  TrainConfig train = into(folder.path(), folder.path());
  train.finetune = true;
  EXPECT_THAT(error_of([&] { check_save_folder(train); }),
              HasSubstr("--finetune begins at iteration 0"));
}

TEST(SaveFolder, WhoIsToldToMayUseAUsedFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000005");
  TrainConfig train = into(folder.path());
  train.save_into_used_folder = true;
  check_save_folder(train);
  train.save_into_used_folder = false;
  train.skip_train = true;  // saves nothing
  check_save_folder(train);
}

TEST(SaveFolder, OneCheckpointIsNamedWithoutACount) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "iter_0000005");
  EXPECT_THAT(error_of([&] { check_save_folder(into(folder.path())); }),
              HasSubstr("holds the checkpoints of another run (iteration 5), but"));
}

TEST(SaveFolder, AutoResumeGoesOnFromItWhateverElseWasToBeLoaded) {
  const TempFolder folder;
  TrainConfig train = into(folder.path(), "elsewhere");
  train.auto_resume = train.finetune = true;
  train.load_optim = train.load_rng = false;
  train.ckpt_step = 7;
  EXPECT_EQ(resume_from_save_folder(train), "");  // no checkpoint yet: the first start
  EXPECT_EQ(train.load, "elsewhere");
  EXPECT_TRUE(train.finetune);
  std::filesystem::create_directories(folder / "iter_0000005");
  write_file(folder / "iter_0000005/manifest.json", "{");
  EXPECT_THAT(resume_from_save_folder(train),
              AllOf(HasSubstr("--auto-resume: the run goes on from " + folder.path().string()),
                    HasSubstr("passed over: ")));
  EXPECT_EQ(train.load, folder.path().string());
  EXPECT_FALSE(train.finetune);
  EXPECT_TRUE(train.load_optim && !train.load_rng && !train.ckpt_step);
  check_save_folder(train);
  train = into(folder.path(), "elsewhere");
  EXPECT_EQ(resume_from_save_folder(train), "");  // nobody asked
  train.auto_resume = train.skip_train = true;
  EXPECT_EQ(resume_from_save_folder(train), "");  // nothing is saved
}

TEST(SaveFolder, AutoResumeDoesNotBeginAnewWhereATrackerNamesACheckpoint) {
  const TempFolder folder;
  write_file(folder / "latest_checkpointed_iteration.txt", "7");
  TrainConfig train = into(folder.path());
  train.auto_resume = true;
  EXPECT_NE(resume_from_save_folder(train), "");
  EXPECT_EQ(train.load, folder.path().string());  // which says that it is lost
}

}  // namespace
}  // namespace phx
