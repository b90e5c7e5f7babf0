#include "phalanx/train/checkpoint_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::optional<CheckpointChoice> chosen(const std::function<void(TrainConfig&)>& set) {
  RunConfig config = tiny_run();
  set(config.train);
  Runtime runtime;
  const Session session(config, runtime.device());
  return choose_checkpoint(session);
}

void save(const Path& folder, std::initializer_list<int64_t> iterations) {
  Runtime runtime;
  const Session session(tiny_run(), runtime.device());
  for (const int64_t iteration : iterations)
    save_session(folder, session, {.iteration = iteration});
}

TEST(CheckpointChoice, IsTheNewestOfLoadOrTheOneThatIsAskedFor) {
  const TempFolder folder;
  save(folder.path(), {3, 5});
  const auto newest = chosen([&](TrainConfig& train) { train.load = folder.path(); });
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->folder, folder.path());
  EXPECT_EQ(newest->iteration, 5);
  EXPECT_FALSE(newest->finetune || newest->hf || newest->megatron);
  const auto third = chosen([&](TrainConfig& train) {
    train.load = folder.path();
    train.ckpt_step = 3;
  });
  ASSERT_TRUE(third);
  EXPECT_EQ(third->iteration, 3);
}

TEST(CheckpointChoice, TheErrorOfABrokenOneListsThoseThatAreWhole) {
  const TempFolder folder;
  save(folder.path(), {2, 3, 4, 5});
  const auto shard = [&](const char* name) {
    return folder / (std::string(name) + "/shard_00000.safetensors");
  };
  std::filesystem::resize_file(shard("iter_0000005"), 100);
  std::filesystem::remove(shard("iter_0000003"));
  RunConfig config = tiny_run();
  config.train.load = folder.path();
  Runtime runtime;
  Session session(config, runtime.device());
  EXPECT_THAT(error_of([&] { load_session(session); }),
              AllOf(HasSubstr("iter_0000005/shard_00000.safetensors has 100 bytes"),
                    HasSubstr("have all of their files: 4, 2; --ckpt-step")));
}

TEST(CheckpointChoice, ThePretrainedOneIsTakenForItsWeightsWhereLoadHasNone) {
  const TempFolder empty, folder;
  save(folder.path(), {4});
  const auto choice = chosen([&](TrainConfig& train) {
    train.load = empty.path();
    train.pretrained_checkpoint = folder.path();
  });
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->folder, folder.path());
  EXPECT_TRUE(choice->finetune);
}

TEST(CheckpointChoice, NoneIsAnErrorOnlyWhereOneIsDemanded) {
  const TempFolder empty;
  EXPECT_FALSE(chosen([&](TrainConfig& train) { train.load = empty.path(); }));
  EXPECT_THAT(error_of([&] {
                chosen([&](TrainConfig& train) {
                  train.load = empty.path();
                  train.exit_on_missing_checkpoint = true;
                });
              }),
              HasSubstr("holds no checkpoint, and --exit-on-missing-checkpoint was given"));
  EXPECT_THAT(error_of([&] {
                chosen([&](TrainConfig& train) { train.pretrained_checkpoint = empty.path(); });
              }),
              HasSubstr("--pretrained-checkpoint"));
}

}  // namespace
}  // namespace phx
