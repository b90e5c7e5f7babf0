#include "phalanx/train/data_fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "phalanx/base/log.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "phalanx/data/token_file.h"
#include "phalanx/train/load_session.h"
#include "phalanx/train/save_session.h"
#include "support/temp_folder.h"
#include "train/tiny_run.h"

namespace phx {
namespace {

using namespace phx::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

void write_tokens(const Path& path, size_t count) {
  TokenFileWriter writer(path);
  writer.append(std::vector<int32_t>(count, 7));
  writer.commit();
}

RunConfig run_on(const Path& tokens) {
  RunConfig config = tiny_run();
  config.data.mock_data = false;
  config.data.token_file = tokens.string();
  config.data.split = "90,10,0";
  return config;
}

std::vector<std::string> between(const RunConfig& before, const RunConfig& now) {
  return fingerprint_differences(data_fingerprint(before), data_fingerprint(now));
}

TEST(DataFingerprint, NamesWhatChangedWithBothValues) {
  const TempFolder folder;
  write_tokens(folder / "a.u16", 5000);
  const RunConfig before = run_on(folder / "a.u16");
  EXPECT_TRUE(between(before, before).empty());

  RunConfig now = before;
  now.data.split = "98,2,0";
  now.model.seq_length = 12;
  now.train.seed = 5;
  EXPECT_THAT(between(before, now),
              ElementsAre("--seed: 1234 in the checkpoint, 5 now",
                          "--seq-length: 24 in the checkpoint, 12 now",
                          "--split: \"90,10,0\" in the checkpoint, \"98,2,0\" now"));
}

TEST(DataFingerprint, SeesAFileThatGrewAndOneThatWasMoved) {
  const TempFolder folder;
  write_tokens(folder / "a.u16", 5000);
  const RunConfig config = run_on(folder / "a.u16");
  const std::string before = data_fingerprint(config);
  write_tokens(folder / "a.u16", 6000);
  EXPECT_THAT(fingerprint_differences(before, data_fingerprint(config)),
              ElementsAre("file 1: \"a.u16, 10000 bytes\" in the checkpoint, "
                          "\"a.u16, 12000 bytes\" now"));

  std::filesystem::create_directory(folder / "elsewhere");
  write_tokens(folder / "elsewhere" / "a.u16", 5000);
  const auto moved =
      fingerprint_differences(before, data_fingerprint(run_on(folder / "elsewhere" / "a.u16")));
  EXPECT_THAT(moved, ElementsAre()) << "the same bytes in another folder";
}

// Megatron's order of samples depends on how many of them are asked for: a longer run has more
// epochs, which are shuffled together.
TEST(DataFingerprint, SeesThatALongerRunHasAnotherOrder) {
  const TempFolder folder;
  {
    IndexedWriter writer(folder / "a", TokenCode::u16);
    for (int document = 0; document < 50; ++document) {
      std::vector<int32_t> tokens;
      for (int i = 0; i < 40; ++i) tokens.push_back((document * 7 + i) % 61);
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.commit();
  }
  RunConfig config = tiny_run();
  config.data.mock_data = false;
  config.data.data_path = {(folder / "a").string()};
  config.data.split = "100,0,0";
  const auto of = [&](int64_t iterations) {
    config.train.train_iters = iterations;
    const Sources sources(config);
    return data_fingerprint(config, sources.train.get());
  };
  EXPECT_THAT(fingerprint_differences(of(5), of(6)), ElementsAre());
  EXPECT_THAT(fingerprint_differences(of(5), of(60)),
              ElementsAre(HasSubstr("the first samples: \"xxh3:")));
}

TEST(DataFingerprint, KnowsTheFilesOfABlendAndTheTokenizersBytes) {
  const TempFolder folder;
  RunConfig before = tiny_run();
  before.data.mock_data = false;
  before.data.data_path = {"0.3", (folder / "a").string(), "0.7", (folder / "b").string()};
  before.data.tokenizer_model = (folder / "tokenizer.model").string();
  for (const char* name : {"a.bin", "b.bin", "tokenizer.model"}) write_file(folder / name, "1234");
  const std::string old = data_fingerprint(before);
  write_file(folder / "b.bin", "12345");
  write_file(folder / "tokenizer.model", "4321");
  const auto lines = fingerprint_differences(old, data_fingerprint(before));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("content of tokenizer.model: \"xxh3:"));
  EXPECT_EQ(lines[1], "file 2: \"b.bin, 4 bytes\" in the checkpoint, \"b.bin, 5 bytes\" now");

  RunConfig now = before;
  now.data.data_path = {(folder / "a").string()};
  EXPECT_THAT(between(before, now),
              ElementsAre("file 2: \"b.bin, 5 bytes\" in the checkpoint, nothing now",
                          "weight 1: \"0.3\" in the checkpoint, nothing now",
                          "weight 2: \"0.7\" in the checkpoint, nothing now"));
}

// What ranks compare and checkpoints never recorded: it would be news to every older checkpoint.
TEST(DataFingerprint, FilesBesideATokenizerAreNoChangeForACheckpoint) {
  const TempFolder folder;
  RunConfig config = tiny_run();
  config.data.mock_data = false;
  config.data.train_data_path = {(folder / "a").string()};
  config.data.tokenizer_model = folder.path().string();
  config.sft.chat_template = (folder / "chat_template.jinja").string();
  for (const char* name : {"a.bin", "tokenizer.json"}) write_file(folder / name, "1234");
  const std::string before = data_fingerprint(config);
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"})
    write_file(folder / name, "{}");
  EXPECT_EQ(data_fingerprint(config), before);
}

TEST(DataFingerprint, AResumedRunSaysThatItsDataChanged) {
  const TempFolder folder;
  write_tokens(folder / "a.u16", 5000);
  RunConfig config = run_on(folder / "a.u16");
  Runtime runtime;
  {
    Session session(config, runtime.device());
    save_session(folder.path(), session, RunState{.iteration = 1, .consumed_samples = 6});
  }
  config.train.load = folder.path().string();
  const auto warning_of = [&] {
    Session session(config, runtime.device());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    EXPECT_TRUE(load_session(session)->state);
    return ::testing::internal::GetCapturedStderr() + ::testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(warning_of(), "");
  write_tokens(folder / "a.u16", 4000);
  EXPECT_THAT(warning_of(),
              HasSubstr("was trained on other data:\n  file 1: \"a.u16, 10000 bytes\" "
                        "in the checkpoint, \"a.u16, 8000 bytes\" now\n"));
  config.train.finetune = true;
  Session session(config, runtime.device());
  ::testing::internal::CaptureStderr();
  load_session(session);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "a new run may have any data";
}

}  // namespace
}  // namespace phx
