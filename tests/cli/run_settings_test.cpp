// Ranks that were not started alike are told so, all of them at once and before training.
#include "phalanx/cli/run_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/cli/build_info.h"
#include "phalanx/comm/socket.h"
#include "phalanx/data/indexed/indexed_writer.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " pretrain --num-layers 2 --hidden-size 32 --num-attention-heads 4 --swiglu"
    " --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --seq-length 16"
    " --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 6 --train-iters 2"
    " --lr 1e-3 --device cpu --threads 1 --vocab-size 64 --distributed-timeout-minutes 1";

struct Rank {
  std::string flags = {}, environment = {}, program = PHX_BINARY;
};

struct Ended {
  int code;
  std::string text;
};

// The ranks as processes that only environment variables tell their number, each with flags of its
// own: what a script on several machines does.
std::vector<Ended> run_ranks(const TempFolder& folder, const std::vector<Rank>& ranks) {
  const int port = listen_on(0).port;
  std::string script;
  for (size_t r = 0; r < ranks.size(); ++r)
    script += str_cat("( env ", ranks[r].environment, " RANK=", r, " WORLD_SIZE=", ranks.size(),
                      " LOCAL_RANK=", r, " LOCAL_WORLD_SIZE=", ranks.size(),
                      " MASTER_ADDR=127.0.0.1 MASTER_PORT=", port, " PHX_STORE_PORT=", port,
                      " timeout 50 ", ranks[r].program, kModel, " ", ranks[r].flags, " > ",
                      folder.path().string(), "/", r, " 2>&1; echo $? > ", folder.path().string(),
                      "/", r, ".code ) &\n");
  EXPECT_EQ(std::system((script + "wait").c_str()), 0);
  std::vector<Ended> ended;
  for (size_t r = 0; r < ranks.size(); ++r)
    ended.push_back({std::stoi(read_file(folder / (std::to_string(r) + ".code"))),
                     read_file(folder / std::to_string(r))});
  return ended;
}

void expect_all_say(const std::vector<Ended>& ended, const std::string& line) {
  for (const Ended& rank : ended) {
    EXPECT_EQ(rank.code, 1) << rank.text;
    EXPECT_THAT(rank.text, AllOf(HasSubstr("error: the ranks of this run were not started alike:"),
                                 HasSubstr("\n  " + line), Not(HasSubstr("iteration"))));
  }
}

TEST(RunSettings, DifferentLearningRatesAreNamedOnAllRanks) {
  const TempFolder folder;
  expect_all_say(run_ranks(folder, {{"--mock-data"}, {"--mock-data --lr 2e-3"}, {"--mock-data"}}),
                 "--lr: 0.001 on ranks 0 and 2; 0.002 on rank 1");
}

TEST(RunSettings, DifferentSeedsAreNamed) {
  const TempFolder folder;
  expect_all_say(run_ranks(folder, {{"--mock-data --seed 1"}, {"--mock-data --seed 2"}}),
                 "--seed: 1 on rank 0; 2 on rank 1");
}

TEST(RunSettings, DifferentLayoutsAreNamedAndDoNotHang) {
  const TempFolder folder;
  const auto start = std::chrono::steady_clock::now();
  expect_all_say(
      run_ranks(folder, {{"--mock-data --tensor-model-parallel-size 2"}, {"--mock-data"}}),
      "--tensor-model-parallel-size: 1 on rank 1; 2 on rank 0");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
}

TEST(RunSettings, DataOfTheSameSizeWithOtherTokensIsNamed) {
  const TempFolder folder;
  std::vector<uint16_t> tokens(1000, 7);
  const auto write = [&](const std::string& name) {
    std::filesystem::create_directories(folder / name);
    std::ofstream(folder / name / "a.u16").write(reinterpret_cast<char*>(tokens.data()), 2000);
    return str_cat("--token-file ", (folder / name / "a.u16").string());
  };
  const std::string one = write("one"), same = write("same");
  tokens[500] = 8;
  const std::string other = write("other");
  expect_all_say(run_ranks(folder, {{one}, {other}}), "data file 1: a.u16, 2000 bytes, xxh3:");
  for (const Ended& rank : run_ranks(folder, {{one}, {same}}))
    EXPECT_EQ(rank.code, 0) << "paths may differ: " << rank.text;
}

// A pair of token files: FOLDER/NAME.bin and .idx.
std::string write_pair(const Path& prefix, int32_t token) {
  std::filesystem::create_directories(prefix.parent_path());
  IndexedWriter writer(prefix, TokenCode::u16);
  for (int document = 0; document < 40; ++document) {
    writer.add_sequence(std::vector<int32_t>(50, token));
    writer.end_document();
  }
  writer.commit();
  return prefix.string();
}

TEST(RunSettings, OtherTokensOfASplitThatAJsonFileNamesAreNamed) {
  const TempFolder folder;
  const auto flags_for = [&](const std::string& name, int32_t token) {
    const std::string common = write_pair(folder / name / "a", 7);
    const std::string valid = write_pair(folder / name / "b", token);
    const Path json = folder / (name + ".json");
    write_file(json, str_cat(R"({"train": [")", common, R"("], "valid": [")", valid, R"("]})"));
    return str_cat("--per-split-data-args-path ", json.string());
  };
  const std::string one = flags_for("one", 7), same = flags_for("same", 7),
                    other = flags_for("other", 8);
  const std::vector<Ended> ended = run_ranks(folder, {{one}, {other}});
  expect_all_say(ended, "data file 3: b.bin, 4000 bytes, xxh3:");
  EXPECT_THAT(ended[0].text, Not(HasSubstr("data file 1"))) << "the training split is the same";
  for (const Ended& rank : run_ranks(folder, {{one}, {same}}))
    EXPECT_EQ(rank.code, 0) << "paths may differ: " << rank.text;
}

TEST(RunSettings, AnotherShareOfFilesBetweenSplitsIsNamed) {
  const TempFolder folder;
  const std::string a = write_pair(folder / "a", 7), b = write_pair(folder / "b", 8);
  expect_all_say(run_ranks(folder, {{str_cat("--train-data-path ", a, " --valid-data-path ", b)},
                                    {str_cat("--train-data-path ", a, " ", b)}}),
                 "data words of --train-data-path: 1 on rank 0; 2 on rank 1");
}

TEST(RunSettings, AnotherTextOfAChatTemplateIsNamed) {
  const TempFolder folder;
  write_file(folder / "chats.jsonl", R"({"prompt": "a", "completion": "b"})");
  const auto flags_for = [&](const Path& at, const std::string& text) {
    std::filesystem::create_directories(at.parent_path());
    write_file(at, text);
    return str_cat("--sft --tokenizer-type NullTokenizer --data-path ",
                   (folder / "chats.jsonl").string(), " --chat-template ");
  };
  const Path one = folder / "one" / "chat_template.jinja", two = folder / "two/chat_template.jinja";
  const std::string flags = flags_for(one, "{{ messages }}");
  flags_for(two, "{{ messages | length }}");
  expect_all_say(run_ranks(folder, {{flags + one.string()}, {flags + two.string()}}),
                 "data content of the file of --chat-template: xxh3:");
  const std::string in_one = flags + one.parent_path().string(),
                    in_two = flags + two.parent_path().string();
  expect_all_say(run_ranks(folder, {{in_one}, {in_two}}),
                 "data content of chat_template.jinja of --chat-template: xxh3:");
  write_file(two, "{{ messages }}");
  write_file(folder / "two" / "tokenizer_config.json", "{}");
  expect_all_say(
      run_ranks(folder, {{in_one}, {in_two}}),
      "data content of tokenizer_config.json of --chat-template: nothing on rank 0; xxh3:");
}

TEST(RunSettings, AnotherFileBesideTheTokenizerIsNamed) {
  const TempFolder folder;
  for (const char* home : {"one", "two"}) {
    std::filesystem::create_directories(folder / home);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "chat_template.jinja"})
      write_file(folder / home / file, "{}");
  }
  const auto settings_of = [&](const Path& model) {
    PretrainOptions options;
    options.data.tokenizer_model = model.string();
    options.data.data_path = {"a"};
    return run_settings(options, "cpu", {});
  };
  EXPECT_EQ(settings_of(folder / "one"), settings_of(folder / "two")) << "paths may differ";
  for (const char* file :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    write_file(folder / "two" / file, "{ }");
    const std::string name = str_cat("data content of ", file);
    for (const char* model : {"", "tokenizer.json"})
      EXPECT_NE(settings_of(folder / "one" / model).at(name),
                settings_of(folder / "two" / model).at(name));
    write_file(folder / "two" / file, "{}");
  }
}

TEST(RunSettings, AMissingDataFileIsNamedWithItsRank) {
  const TempFolder folder;
  std::ofstream(folder / "a.u16") << std::string(2000, 'a');
  const std::string flag = "--vocab-size 32768 --token-file ";
  expect_all_say(run_ranks(folder, {{flag + (folder / "a.u16").string()},
                                    {flag + (folder / "elsewhere/a.u16").string()}}),
                 "data file 1: a.u16, 2000 bytes, xxh3:");
  EXPECT_THAT(read_file(folder / "0"), HasSubstr("a.u16, missing on rank 1"));
}

TEST(RunSettings, DifferentEnvironmentVariablesAreNamed) {
  const TempFolder folder;
  expect_all_say(
      run_ranks(folder, {{"--mock-data", "NCCL_ALGO=Ring"}, {"--mock-data", "NCCL_ALGO=Tree"}}),
      "NCCL_ALGO: Ring on rank 0; Tree on rank 1");
}

TEST(RunSettings, AnotherBuildOfTheProgramIsNamed) {
  const TempFolder folder;
  // The same program under another number: one byte of the linker's checksum is changed.
  std::string program = read_file(PHX_BINARY), id;
  const Ended version = [&] {
    const std::string command = str_cat(PHX_BINARY, " --version > ", (folder / "version").string());
    return Ended{std::system(command.c_str()), read_file(folder / "version")};
  }();
  const size_t at = version.text.find("(build ");
  ASSERT_NE(at, std::string::npos) << version.text;
  for (size_t i = at + 7; version.text[i] != ')'; i += 2)
    id += char(std::stoi(version.text.substr(i, 2), nullptr, 16));
  const size_t place = program.find(id);
  ASSERT_NE(place, std::string::npos);
  program[place] = char(program[place] ^ 1);
  const std::string other = (folder / "other").string();
  std::ofstream(other) << program;
  std::filesystem::permissions(other, std::filesystem::perms::owner_all);
  expect_all_say(run_ranks(folder, {{"--mock-data"}, {"--mock-data", "", other}}),
                 "phalanx: version " + program_version());
}

TEST(RunSettings, FlagsThatOneRankUsesMayDiffer) {
  const TempFolder folder;
  const std::string metrics = "--mock-data --metrics-file " + folder.path().string();
  for (const Ended& rank :
       run_ranks(folder, {{metrics + "/a.jsonl",
                           str_cat("NCCL_DEBUG=INFO PHX_LEDGER_DIR=", folder.path().string())},
                          {metrics + "/b.jsonl --threads 2"}}))
    EXPECT_EQ(rank.code, 0) << rank.text;
}

TEST(RunSettings, LaunchedRanksInDifferentFoldersSaveToDifferentPlaces) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "a");
  std::filesystem::create_directories(folder / "b");
  const std::string flags = "--mock-data --save here --save-interval 1";
  expect_all_say(run_ranks(folder, {{flags, "-C " + (folder / "a").string()},
                                    {flags, "-C " + (folder / "b").string()}}),
                 str_cat("--save: ", (folder / "a/here").string(), " on rank 0; ",
                         (folder / "b/here").string(), " on rank 1"));
}

// mpirun starts different programs as the ranks of one world.
TEST(RunSettings, RanksUnderMpirunCompareToo) {
  const TempFolder folder;
  const auto part = [&](const std::string& flags) {
    return str_cat(" -np 1 ", PHX_BINARY, kModel, " --mock-data ", flags);
  };
  const std::string command =
      str_cat("timeout 50 mpirun --allow-run-as-root --oversubscribe", part("--seed 1"), " :",
              part("--seed 2"), " > ", (folder / "log").string(), " 2>&1");
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_THAT(read_file(folder / "log"),
              AllOf(HasSubstr("the ranks of this run were not started alike:"),
                    HasSubstr("\n  --seed: 1 on rank 0; 2 on rank 1")));
}

TEST(RunSettings, LaunchedRanksThatAreAlikeTrain) {
  const TempFolder folder;
  const std::string command = str_cat("timeout 50 ", PHX_BINARY, " launch --nproc 2", kModel,
                                      " --mock-data > ", (folder / "log").string(), " 2>&1");
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(folder / "log");
}

TEST(RunSettings, EveryFlagThatMayDifferExistsAndHasAReason) {
  PretrainOptions options;
  const OptionSet set = pretrain_option_set(options);
  for (const MayDiffer& flag : flags_that_may_differ()) {
    EXPECT_NE(set.find(flag.name), nullptr) << flag.name;
    EXPECT_STRNE(flag.reason, "");
  }
  for (const MayDiffer& variable : variables_that_may_differ()) EXPECT_STRNE(variable.reason, "");
}

TEST(RunSettings, EveryOtherFlagIsCompared) {
  PretrainOptions options;
  const Settings settings = run_settings(options, "cpu", {});
  const OptionSet set = pretrain_option_set(options);
  for (const Option& option : set.all()) {
    bool may = false;
    for (const MayDiffer& flag : flags_that_may_differ()) may |= option.name == flag.name;
    EXPECT_EQ(settings.contains(option.flag()), !may) << option.name;
  }
  EXPECT_TRUE(settings.at("phalanx").starts_with("version " + program_version() + ", build "));
}

}  // namespace
}  // namespace phx
