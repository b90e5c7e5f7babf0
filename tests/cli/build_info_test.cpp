#include "phalanx/cli/build_info.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "phalanx/base/file.h"

namespace phx {
namespace {

TEST(BuildInfo, TheVersionIsThatOfTheProject) {
  const std::string project = read_file(Path(PHX_SOURCE_DIR) / "CMakeLists.txt");
  EXPECT_NE(project.find("project(phalanx VERSION " + program_version() + " "), std::string::npos);
}

TEST(BuildInfo, TheLinkersNumberIsHexadecimalAndTheSameEveryTime) {
  const std::string id = build_id();
  EXPECT_EQ(id, build_id());
  EXPECT_EQ(id.size() % 2, 0u);
  EXPECT_TRUE(id.empty() || id.size() >= 16) << id;
  EXPECT_TRUE(std::ranges::all_of(id, [](char c) { return ::isxdigit(c) != 0; })) << id;
}

// The number is in the program's own file, as the linker wrote it.
TEST(BuildInfo, TheNumberIsThatOfThisBinary) {
  const std::string id = build_id();
  if (id.empty()) GTEST_SKIP() << "the linker wrote none";
  std::string bytes;
  for (size_t i = 0; i < id.size(); i += 2) bytes += char(std::stoi(id.substr(i, 2), nullptr, 16));
  EXPECT_NE(read_file("/proc/self/exe").find(bytes), std::string::npos);
}

}  // namespace
}  // namespace phx
