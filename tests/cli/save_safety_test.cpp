// The program as users run it, when things go wrong around it: two runs in one folder, lost files,
// full disks, data that changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/checkpoint/checkpoint_folder.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel =
    " pretrain --num-layers 2 --hidden-size 32 --num-attention-heads 4 --swiglu"
    " --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --seq-length 16"
    " --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 2 --log-interval 1"
    " --lr 1e-3 --lr-decay-style constant --device cpu --threads 1 --vocab-size 64";
const std::string kMock = kModel + " --mock-data";

struct Ended {
  int code;
  std::string text;  // of both outputs
};

class SaveSafety : public ::testing::Test {
 protected:
  Path at(const std::string& name) const { return folder_ / name; }
  std::string save() const {
    return str_cat(" --save ", at("saves").string(), " --save-interval 2");
  }
  std::string load() const { return str_cat(" --load ", at("saves").string()); }

  // A script of bash, which finds the program in $P and this folder in $D.
  Ended script(const std::string& text) const {
    write_file(at("script"), text);
    const std::string command =
        str_cat("P=", PHX_BINARY, " D=", folder_.path().string(), " timeout 100 bash ",
                at("script").string(), " > ", at("log").string(), " 2>&1");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(at("log"))};
  }
  Ended run(const std::string& flags) const { return script("$P" + flags); }

  TempFolder folder_;
};

// Waits until a condition of bash holds.
std::string until(const std::string& condition) {
  return str_cat("for i in $(seq 600); do ", condition, " && break; sleep 0.05; done\n");
}

TEST_F(SaveSafety, ASecondRunInTheFolderIsRefusedAndAKilledOneIsTakenOver) {
  const Ended ended =
      script(str_cat("$P", kMock, save(), " --train-iters 1000000 > $D/first 2>&1 &\nfirst=$!\n",
                     until("[ -e $D/saves/iter_0000002 ]"), "$P", kMock, save(), load(),
                     " --train-iters 1000000\necho \"second: $?\"\n",
                     "grep -o '\"pid\":[0-9]*' $D/saves/run.lock\n",
                     "echo \"holder: $first\"\nkill -9 $first\nwait $first\n",
                     "n=$(cat $D/saves/latest_checkpointed_iteration.txt)\n", "$P", kMock, save(),
                     load(), " --train-iters $((n + 2))\n"));
  EXPECT_EQ(ended.code, 0) << ended.text;
  const size_t found = ended.text.find("holder: ");
  ASSERT_NE(found, std::string::npos) << ended.text;
  const std::string pid = std::to_string(std::stoi(ended.text.substr(found + 8)));
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("is in use: process " + pid + " on "), HasSubstr("second: 1"),
                    HasSubstr("\"pid\":" + pid), HasSubstr("which is dead: its lock is taken over"),
                    HasSubstr("loaded ")));
  EXPECT_FALSE(std::filesystem::exists(at("saves/run.lock"))) << "a run that ends leaves no lock";
}

TEST_F(SaveSafety, AUsedFolderWithoutLoadIsRefusedUnlessToldAndItsCheckpointsStay) {
  EXPECT_EQ(run(kMock + save() + " --train-iters 4").code, 0);
  const Ended refused = run(kMock + save() + " --train-iters 2");
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("holds the checkpoints of another run"),
                                  HasSubstr("--save-into-used-folder")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
  EXPECT_EQ(run(kMock + save() + " --train-iters 2 --save-into-used-folder").code, 0);
  EXPECT_EQ(latest_checkpoint(at("saves")), 2);
}

TEST_F(SaveSafety, AMissingTrackerNeverRestartsAtZeroOverCheckpoints) {
  EXPECT_EQ(run(kMock + save() + " --train-iters 4").code, 0);
  std::filesystem::remove(at("saves/latest_checkpointed_iteration.txt"));
  EXPECT_THAT(run(kMock + save() + " --train-iters 6").text, HasSubstr("the newest of iteration 4"))
      << "without --load: refused";
  const Ended resumed = run(kMock + save() + load() + " --train-iters 6");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text,
              AllOf(HasSubstr("warning: --load: "),
                    HasSubstr("the newest complete checkpoint there is used: iteration 4"),
                    HasSubstr("iter_0000004, iteration 4")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 6);
}

TEST_F(SaveSafety, AnEmptyFolderNameIsAnError) {
  for (const char* flag : {"--save", "--load"}) {
    const Ended ended = run(str_cat(kMock, " --train-iters 2 --save-interval 1 ", flag, " \"\""));
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.text, HasSubstr(str_cat(flag, " \"\" names no folder")));
  }
}

TEST_F(SaveSafety, AVerifiedSaveIsAGoodCheckpoint) {
  for (const char* kind : {"", " --async-save", " --local-ranks 2"}) {
    std::filesystem::remove_all(at("saves"));
    const Ended ended = run(str_cat(kMock, save(), " --save-verify --train-iters 4", kind));
    EXPECT_EQ(ended.code, 0) << ended.text;
    EXPECT_EQ(run(" inspect checkpoint " + at("saves").string() + " --verify").code, 0);
  }
}

// Data-parallel ranks hold the same state: whoever is left saves it, also without rank 0.
class KilledRank : public SaveSafety, public ::testing::WithParamInterface<int> {};

TEST_P(KilledRank, LeavesACheckpointToTheOthers) {
  const Ended ended = script(str_cat(
      "$P launch --nproc 3", kMock, " --global-batch-size 3 --train-iters 1000000",
      " --save $D/saves --save-interval 1000000 --metrics-file $D/metrics > $D/first 2>&1 &\n",
      "launcher=$!\n", until("[ $(cat $D/metrics 2>/dev/null | wc -l) -ge 5 ]"),
      "for p in $(cat /proc/$launcher/task/$launcher/children); do\n",
      "  tr '\\0' '\\n' < /proc/$p/environ | grep -qx RANK=", GetParam(), " && kill -9 $p\n",
      "done\nwait $launcher\necho \"code $?\"\ntail -n 30 $D/first\n",
      "$P inspect checkpoint $D/saves --verify && ",
      "n=$(cat $D/saves/latest_checkpointed_iteration.txt) && $P", kMock,
      " --global-batch-size 3 --train-iters $((n + 1)) --load $D/saves\n"));
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("code 137\n"), HasSubstr("the last good state is iteration "),
                    HasSubstr("which holds all of it"), HasSubstr("killed by signal 9")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, ::testing::Values(0, 2));

// Ranks that hold parts of the state need all of them: without one nothing is written, and nobody
// waits for it.
class KilledPart : public SaveSafety, public ::testing::WithParamInterface<int> {};

TEST_P(KilledPart, EndsTheOthersSoonWithTheOldCheckpointAndNothingElse) {
  const std::string launch =
      str_cat("$P launch --nproc 4", kMock, " --tensor-model-parallel-size 2",
              " --use-distributed-optimizer --save $D/saves --save-interval 1000000");
  const Ended ended = script(str_cat(
      launch, " --train-iters 2 > $D/before 2>&1\n", launch,
      " --load $D/saves --train-iters 1000000 --metrics-file $D/metrics > $D/first 2>&1 &\n",
      "launcher=$!\n", until("[ $(cat $D/metrics 2>/dev/null | wc -l) -ge 5 ]"),
      "for p in $(cat /proc/$launcher/task/$launcher/children); do\n",
      "  tr '\\0' '\\n' < /proc/$p/environ | grep -qx RANK=", GetParam(), " && kill -9 $p\n",
      "done\nSECONDS=0\nwait $launcher\necho \"code $?\"\n",
      "[ $SECONDS -lt 20 ] && echo soon\ntail -n 30 $D/first\n",
      "echo iter: $(cd $D/saves; ls -d iter_*)\n$P inspect checkpoint $D/saves --verify\n"));
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("code 137\n"), HasSubstr("soon\n"),
                    HasSubstr(str_cat("is not saved: rank ", GetParam(),
                                      " died, and its part of the state with it; the last "
                                      "checkpoint is still that of iteration 2")),
                    HasSubstr("iter: iter_0000002\n")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledPart, ::testing::Values(0, 2));

// --- data that changes under a run

void write_tokens(const Path& path, size_t tokens) {
  const std::vector<uint16_t> values(tokens, 7);
  std::ofstream(path).write(reinterpret_cast<const char*>(values.data()),
                            std::streamsize(2 * tokens));
}

class ShrinkingData : public SaveSafety, public ::testing::WithParamInterface<const char*> {};

TEST_P(ShrinkingData, EndsTheRunWithWordsAndACheckpoint) {
  write_tokens(at("data.u16"), 100000);
  const Ended ended = script(str_cat(
      "$P", GetParam(), kModel, save(), " --token-file $D/data.u16 --train-iters 1000000",
      " --metrics-file $D/metrics > $D/first 2>&1 &\nfirst=$!\n",
      until("[ $(cat $D/metrics 2>/dev/null | wc -l) -ge 5 ]"), "truncate -s 199990 $D/data.u16\n",
      "wait $first\necho \"code $?\"\ntail -n 30 $D/first\n$P inspect checkpoint $D/saves "
      "--verify\n"));
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("code 1\n"),
                    HasSubstr("data.u16 cannot be read any more: it had "
                              "200000 bytes when it was opened, and has "
                              "199990 now"),
                    HasSubstr("the last good state is iteration "), HasSubstr("saved in ")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShrinkingData, ::testing::Values("", " launch --nproc 2"));

TEST_F(SaveSafety, ADataFileThatLosesItsPagesIsNoBusError) {
  write_tokens(at("data.u16"), 4000000);
  const Ended ended = script(str_cat(
      "$P", kModel, save(), " --token-file $D/data.u16 --train-iters 1000000",
      " --metrics-file $D/metrics > $D/first 2>&1 &\nfirst=$!\n",
      until("[ $(cat $D/metrics 2>/dev/null | wc -l) -ge 5 ]"), "truncate -s 4096 $D/data.u16\n",
      "wait $first\necho \"code $?\"\ntail -n 30 $D/first\n"));
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("code 1\n"), HasSubstr("data.u16 cannot be read any more"),
                    HasSubstr("the last good state is iteration ")));
}

TEST_F(SaveSafety, AShrinkingPairOfBinAndIdxEndsTheRunAlike) {
  const Ended ended = script(str_cat(
      "$P corpus --output $D/text.jsonl --megabytes 0.2 > $D/corpus\n",
      "$P preprocess --input $D/text.jsonl --output-prefix $D/pair --tokenizer-type ByteTokenizer",
      " > $D/preprocess 2>&1\n", "$P", kModel, save(),
      " --vocab-size 257 --data-path $D/pair_text_document --split 1,0,0 --train-iters 1000000",
      " --metrics-file $D/metrics > $D/first 2>&1 &\nfirst=$!\n",
      until("[ $(cat $D/metrics 2>/dev/null | wc -l) -ge 5 ]"),
      "truncate -s 5000 $D/pair_text_document.bin\n",
      "wait $first\necho \"code $?\"\ntail -n 30 $D/first\n"));
  EXPECT_THAT(
      ended.text,
      AllOf(HasSubstr("code 1\n"), HasSubstr("pair_text_document.bin cannot be read any more"),
            HasSubstr("and has 5000 now"), HasSubstr("the last good state is iteration ")));
}

// --- disks that are full

// A folder of 64 KiB, where this user may mount one; nothing otherwise.
std::string on_small_disk(const std::string& commands) {
  return str_cat("mkdir -p $D/small\nunshare -rm bash -c '\n",
                 "mount -t tmpfs -o size=64k none $D/small || exit 77\n", commands, "'\n");
}

TEST_F(SaveSafety, AFullDiskBehindMetricsAndTensorBoardDoesNotEndTheRun) {
  const Ended ended = script(on_small_disk(
      str_cat("$P", kMock, save(), " --train-iters 300 --metrics-file $D/small/metrics",
              " --tensorboard-dir $D/small/tb\n")));
  if (ended.code == 77 || ended.text.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no small disk can be mounted here";
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text,
              AllOf(HasSubstr("/small/metrics: cannot write"), HasSubstr("disk is full"),
                    HasSubstr("/small/tb: cannot write"), HasSubstr("the run goes on without it")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 300);
}

// What ranks called is written to mapped files, in /dev/shm unless told otherwise.
TEST_F(SaveSafety, AFullDiskBehindTheLedgersDoesNotEndTheRun) {
  const Ended ended = script(on_small_disk(str_cat("cat /dev/zero > $D/small/all 2>/dev/null\n",
                                                   "PHX_LEDGER_DIR=$D/small $P launch --nproc 2",
                                                   kMock, save(), " --train-iters 4\n")));
  if (ended.code == 77 || ended.text.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no small disk can be mounted here";
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("small/rank-0.ledger"), HasSubstr("small/rank-1.ledger"),
                                HasSubstr("disk is full"), HasSubstr("the run goes on")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
}

// Indices of datasets are kept for later runs; this one has made them already.
TEST_F(SaveSafety, AFullDiskBehindTheIndexCacheDoesNotEndTheRun) {
  const Ended ended = script(str_cat(
      "$P corpus --output $D/text.jsonl --megabytes 0.05 > $D/corpus\n",
      "$P preprocess --input $D/text.jsonl --output-prefix $D/pair --tokenizer-type ByteTokenizer",
      " > $D/preprocess 2>&1\n",
      on_small_disk(str_cat("cat /dev/zero > $D/small/all 2>/dev/null\n", "$P", kModel, save(),
                            " --vocab-size 257 --data-path $D/pair_text_document --split 1,0,0",
                            " --data-cache-path $D/small/cache --train-iters 4\n"))));
  if (ended.code == 77 || ended.text.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no small disk can be mounted here";
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("warning: "), HasSubstr("small/cache")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
}

TEST_F(SaveSafety, ACopyOfTheOptionsThatCannotBeWrittenDoesNotEndTheRun) {
  const Ended ended = script(
      str_cat("mkdir -p $D/saves/options.json/a\n", "$P", kMock, save(), " --train-iters 4\n"));
  EXPECT_EQ(ended.code, 0) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("warning: "), HasSubstr("options.json")));
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
}

TEST_F(SaveSafety, AFullDiskBehindTheLogDoesNotEndTheRun) {
  const Ended ended =
      script(str_cat("$P", kMock, save(), " --train-iters 4 > /dev/full 2>/dev/full\n"));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
}

TEST_F(SaveSafety, AClosedPipeBehindTheLogDoesNotEndTheRun) {
  for (const char* how : {"", " launch --nproc 2"}) {
    std::filesystem::remove_all(at("saves"));
    const Ended ended = script(str_cat("$P", how, kMock, save(), " --train-iters 40 2>&1 | true\n",
                                       "echo \"code ${PIPESTATUS[0]}\"\n"));
    EXPECT_THAT(ended.text, HasSubstr("code 0\n")) << how;
    EXPECT_EQ(latest_checkpoint(at("saves")), 40) << how;
  }
}

// The first files that such a run opens would be its standard output and error.
TEST_F(SaveSafety, OutputsThatAreClosedAreNoFilesOfTheRun) {
  const Ended ended =
      script(str_cat("$P", kMock, save(), " --metrics-file $D/metrics --train-iters 4 >&- 2>&-\n"));
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(latest_checkpoint(at("saves")), 4);
  EXPECT_FALSE(std::filesystem::exists(at("saves/run.lock"))) << read_file(at("saves/run.lock"));
  EXPECT_EQ(run(" inspect checkpoint " + at("saves").string() + " --verify").code, 0);
}

TEST_F(SaveSafety, AFullDiskBehindCheckpointsEndsTheRunAndTheOldOneStays) {
  const Ended ended = script(on_small_disk(str_cat(
      "$P", kMock, " --save $D/small/saves --save-interval 2 --train-iters 4000; code=$?\n",
      "cat $D/small/saves/latest_checkpointed_iteration.txt; ls $D/small/saves; exit $code\n")));
  if (ended.code == 77 || ended.text.find("unshare") != std::string::npos)
    GTEST_SKIP() << "no small disk can be mounted here";
  EXPECT_EQ(ended.code, 1) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("the disk is full"), Not(HasSubstr("terminate"))));
}

}  // namespace
}  // namespace phx
