#include "phalanx/base/log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

// What a program prints that logs to a terminal on a file.
std::string printed(LogLevel level, const std::string& prefix) {
  const TempFolder folder;
  const Path path = folder.path() / "log";
  std::FILE* file = std::fopen(path.c_str(), "w");
  log_to(std::make_shared<Terminal>(file, file, TerminalMode::plain), level, prefix);
  log_debug("one");
  log_info("two");
  log_warning("three");
  log_error("four");
  log_to(std::make_shared<Terminal>(stdout, stderr, TerminalMode::plain), LogLevel::info);
  std::fclose(file);
  return read_file(path);
}

TEST(Log, LinesBelowTheLevelAreLeftOut) {
  const std::string text = printed(LogLevel::warning, "");
  EXPECT_EQ(text.find("one"), std::string::npos);
  EXPECT_EQ(text.find("two"), std::string::npos);
  EXPECT_NE(text.find("warning: three\n"), std::string::npos) << text;
  EXPECT_NE(text.find("error: four\n"), std::string::npos) << text;
}

TEST(Log, ARankStandsBeforeItsMessages) {
  EXPECT_NE(printed(LogLevel::debug, "rank 3: ").find("rank 3: two\n"), std::string::npos);
}

TEST(Log, NoneIsSilent) { EXPECT_EQ(printed(LogLevel::none, ""), ""); }

}  // namespace
}  // namespace phx
