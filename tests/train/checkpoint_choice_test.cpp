#include "phalanx/train/checkpoint_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "checkpoint/torch_fixture.h"
#include "phalanx/base/error.h"
#include "phalanx/comm/thread_world.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/same_checkpoint.h"
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

// What rank 1 says when its machine has `other` where rank 0's has `one`; nothing if they load it.
std::string said_by_ranks_that_load(const Path& one, const Path& other) {
  RunConfig config = tiny_run();
  config.parallel.tensor_model_parallel_size = 2;
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), 2);
  std::array<std::string, 2> said;
  run_thread_ranks(2, {}, [&](World& ranks) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    RunConfig own = config;
    own.train.load = (ranks.rank() == 0 ? one : other).string();
    Session session(own, sources, runtime.device(), mesh);
    try {
      load_session(session);
    } catch (const Error& error) {
      said[size_t(ranks.rank())] = error.what();
    }
  });
  EXPECT_EQ(said[0].empty(), said[1].empty());
  return said[1];
}

TEST(CheckpointChoice, RanksThatFindOtherBytesUnderTheirPathNameThem) {
  const TempFolder one, other, empty;
  save(one.path(), {3});
  save(other.path(), {3});
  const Path manifest = other / "iter_0000003" / "manifest.json";
  EXPECT_EQ(said_by_ranks_that_load(one.path(), one.path()), "");
  write_file(manifest, read_file(manifest) + "\n");
  EXPECT_THAT(
      said_by_ranks_that_load(one.path(), other.path()),
      AllOf(HasSubstr("the ranks do not find the same checkpoint at " + other.path().string()),
            HasSubstr(" on rank 0"), HasSubstr(" on rank 1"), HasSubstr("hint: copy it")));
  EXPECT_THAT(said_by_ranks_that_load(one.path(), empty.path()), HasSubstr("nothing on rank 1"));
}

TEST(CheckpointChoice, OtherFilesOfAMegatronOrHuggingFaceFolderAreSeen) {
  const TempFolder folder;
  for (const char* name : {"one", "other"}) {
    std::filesystem::create_directory(folder / name);
    write_file(folder / name / "config.json", "{}");
    write_file(folder / name / "model.safetensors", "1234");
    write_file(folder / name / "README.md", name);
  }
  const auto alike = [&] {
    return folder_checksum(folder / "one") == folder_checksum(folder / "other");
  };
  EXPECT_TRUE(alike());
  write_file(folder / "other" / "model.safetensors", "12345");
  EXPECT_FALSE(alike()) << "a size";
  write_file(folder / "other" / "model.safetensors", "1234");
  write_file(folder / "other" / "config.json", "[]");
  EXPECT_FALSE(alike()) << "what config.json says";
  write_file(folder / "other" / "config.json", "{}");
  write_file(folder / "other" / "more.safetensors", "");
  EXPECT_FALSE(alike()) << "a name";
  EXPECT_EQ(folder_checksum(folder / "neither"), 0u);
}

// Its own tracker may name another iteration on a machine that did not save the last one.
TEST(CheckpointChoice, AllRanksTakeTheIterationOfMegatronThatRankZeroFinds) {
  const TempFolder folder;
  const auto with_tracker = [&](const char* name, const char* iteration) {
    std::filesystem::create_directory(folder / name);
    for (const char* place : {"iter_0000030", "iter_0000040"})
      std::filesystem::copy(torch_fixture("torch_dist"), folder / name / place,
                            std::filesystem::copy_options::recursive);
    write_file(folder / name / "latest_checkpointed_iteration.txt", iteration);
    return folder / name;
  };
  const Path one = with_tracker("one", "30"), other = with_tracker("other", "40");
  RunConfig config = tiny_run();
  config.parallel.tensor_model_parallel_size = 2;
  const Sources sources(config);
  const Layout layout = make_layout(config.layout(), 2);
  run_thread_ranks(2, {}, [&](World& ranks) {
    Runtime runtime({.threads = 1});
    const Mesh mesh(ranks, layout.mesh);
    RunConfig own = config;
    own.train.load = (ranks.rank() == 0 ? one : other).string();
    const Session session(own, sources, runtime.device(), mesh);
    const auto found = choose_checkpoint(session);
    ASSERT_TRUE(found && found->megatron);
    EXPECT_EQ(found->step, 30) << ranks.rank();
  });
}

}  // namespace
}  // namespace phx
