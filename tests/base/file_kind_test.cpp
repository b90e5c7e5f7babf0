#include "phalanx/base/file_kind.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/temp_folder.h"

namespace phx {
namespace {

using namespace std::string_view_literals;

TEST(FileKind, BinaryFormatsAreKnownByTheirFirstBytes) {
  EXPECT_EQ(binary_kind("\x1f\x8b\x08\0rest"sv), "gzip data");
  EXPECT_EQ(binary_kind("GGUF\x03\0\0\0"sv), "a GGUF model");
  EXPECT_EQ(binary_kind("\xfd"
                        "7zXZ\0more"sv),
            "xz data");
  EXPECT_EQ(binary_kind("MMIDIDX\0\0\x01"sv), "an index of tokens (.idx)");
}

TEST(FileKind, TextIsNone) {
  for (const std::string_view text : {"{\"text\": 1}"sv, "GG"sv, ""sv, "\x1f"sv, "PK and so on"sv})
    EXPECT_EQ(binary_kind(text), "") << text;
}

TEST(FileKind, OfAFileAndOfNone) {
  const TempFolder folder;
  std::ofstream(folder / "data.jsonl") << "PAR1 and columns";
  EXPECT_EQ(binary_kind_of(folder / "data.jsonl"), "a Parquet file");
  EXPECT_EQ(binary_kind_of(folder / "missing"), "");
  EXPECT_EQ(binary_kind_of(folder.path()), "");
}

}  // namespace
}  // namespace phx
