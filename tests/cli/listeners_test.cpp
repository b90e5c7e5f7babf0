// Which ports the program listens on: those of a run on one machine cannot be reached from others,
// and none is left when all ranks are connected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// listeners PID: the addresses that a process listens on, as /proc/net/tcp writes them.
const char* const kFunctions = R"sh(
listeners() {
  for fd in /proc/$1/fd/*; do readlink $fd; done 2>/dev/null | sed -n 's/^socket:\[\(.*\)\]$/\1/p' > $D/inodes
  awk 'NR == FNR { own[$1] = 1; next } $4 == "0A" && ($10 in own) { sub(/:.*/, "", $2); print $2 }' \
    $D/inodes /proc/net/tcp /proc/net/tcp6
}
until_true() { for i in $(seq 600); do "$@" && return 0; sleep 0.05; done; return 1; }
rank() {
  RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=$(hostname) MASTER_PORT=$PORT exec $P \
    pretrain --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --vocab-size 61 \
    --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 2 --train-iters 1000000 \
    --lr 1e-3 --log-interval 1 --mock-data --device cpu --threads 1 --metrics-file $D/metrics
}
listens() { [ -n "$(listeners $1)" ]; }
trains() { [ "$(cat $D/metrics 2>/dev/null | wc -l)" -ge 3 ]; }
)sh";

TEST(Listeners, OfOneMachineAreLoopbackAndGoneWhenAllRanksAreThere) {
  const TempFolder folder;
  write_file(
      folder / "script",
      str_cat(kFunctions, "PORT=$((20000 + RANDOM % 12000))\n", "rank 0 > $D/log0 2>&1 & zero=$!\n",
              "until_true listens $zero && echo waiting: $(listeners $zero)\n",
              "rank 1 > $D/log1 2>&1 & one=$!\n",
              "until_true trains && echo training: $(listeners $zero) $(listeners $one).\n",
              "kill -9 $zero $one\n", "wait\ntail -n 5 $D/log0 $D/log1\n"));
  const std::string command =
      str_cat("P=", PHX_BINARY, " D=", folder.path().string(), " timeout 100 bash ",
              (folder / "script").string(), " > ", (folder / "log").string(), " 2>&1");
  std::system(command.c_str());
  const std::string text = read_file(folder / "log");
  EXPECT_THAT(text, AllOf(HasSubstr("waiting: 0100007F\n"), HasSubstr("training: .\n")));
  EXPECT_THAT(text, Not(HasSubstr("00000000")));
}

}  // namespace
}  // namespace phx
