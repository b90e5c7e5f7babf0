// A run on two machines that are network namespaces (scripts/machines.sh has all the cases).
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

// What the script says is in the message if it fails.
void run_cases(const std::string& cases) {
  const TempFolder folder;
  const Path log = folder.path() / "log";
  const std::string command =
      str_cat("PHX_BINARY='", PHX_BINARY, "' '", PHX_SOURCE_DIR, "/scripts/machines.sh' ", cases,
              " > ", log.string(), " 2>&1");
  const int status = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << read_file(log);
  EXPECT_EQ(WEXITSTATUS(status), 0) << read_file(log);
}

TEST(Machines, TwoGiveTheSameBitsAsOneAndADeathIsNamed) { run_cases("short"); }

}  // namespace
}  // namespace phx
