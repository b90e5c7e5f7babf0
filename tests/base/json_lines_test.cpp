#include "phalanx/base/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(JsonLines, ObjectsComeInOrderWithTheirLines) {
  const TempFolder folder;
  write_file(folder / "x", "{\"a\":1}\n\n{\"a\":2}\r\n");
  std::vector<std::pair<int, int64_t>> seen;
  read_json_lines(folder / "x", [&](const nlohmann::json& object, int64_t line) {
    seen.emplace_back(object["a"].get<int>(), line);
  });
  EXPECT_EQ(seen, (std::vector<std::pair<int, int64_t>>{{1, 1}, {2, 3}}));
}

TEST(JsonLines, AnUnfinishedLastLineIsLeftOut) {
  const TempFolder folder;
  write_file(folder / "x", "{\"a\":1}\n{\"a\":2");
  int count = 0;
  read_json_lines(folder / "x", [&](const nlohmann::json&, int64_t) { ++count; });
  EXPECT_EQ(count, 1);
}

TEST(JsonLines, ABrokenLineIsNamed) {
  const TempFolder folder;
  write_file(folder / "x", "{\"a\":1}\n[1]\n");
  EXPECT_EQ(error_of([&] { read_json_lines(folder / "x", [](const nlohmann::json&, int64_t) {}); }),
            (folder / "x").string() + ":2: a line should be one JSON object, but it is: [1]");
}

}  // namespace
}  // namespace phx
