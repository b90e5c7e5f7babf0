#include "phalanx/convert/hf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/memory_source.h"
#include "phalanx/base/error.h"
#include "phalanx/checkpoint/safetensors.h"
#include "phalanx/convert/hf_folder.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using testing::FaultyDisk;
using ::testing::HasSubstr;

// A folder whose weights and config.json both say `number`.
void write(const Path& folder, int number, const HfWriteOptions& options) {
  TensorsInMemory tensors;
  tensors.set("w", {DType::u8, {1}}, {std::byte(number)});
  write_hf_folder(folder, tensors, {"w"}, {{"number", number}}, options);
}

// What both say; -1 if they are not there, or contradict each other.
int read(const Path& folder) {
  if (!std::filesystem::exists(folder / "config.json")) return -1;
  const int number = read_json_object(folder / "config.json")["number"];
  const SafetensorsFile file(folder / "model.safetensors");
  return file.at("w").bytes[0] == std::byte(number) ? number : -1;
}

TEST(HfWriter, AFolderIsReplacedInOneGoWhicheverCallFails) {
  for (int64_t call = 1;; ++call) {
    const TempFolder folder;
    write(folder / "out", 1, {.replace = true});
    FaultyDisk disk;
    disk.fail_from = call;
    bool failed = false;
    try {
      write(folder / "out", 2, {.replace = true, .disk = &disk});
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(folder.path().native()));
      failed = true;
    }
    const int found = read(folder / "out");
    // Where only the old one's removal failed, the new one is there and nothing is lost.
    EXPECT_TRUE(found == 2 || (failed && found == 1)) << "call " << call << ": " << found;
    if (disk.calls() < call) {
      EXPECT_FALSE(failed);
      break;
    }
  }
}

TEST(HfWriter, FoldersOfOthersBesideItAreLeftAlone) {
  const TempFolder folder;
  for (const char* name : {"out.replaced", "out.partial", "out.old", "out.tmp"})
    write(folder / name, 7, {});
  write(folder / "out", 1, {});
  write(folder / "out", 2, {.replace = true});
  for (const char* name : {"out.replaced", "out.partial", "out.old", "out.tmp"})
    EXPECT_EQ(read(folder / name), 7) << name;
  EXPECT_EQ(read(folder / "out"), 2);
}

TEST(HfWriter, ASlashAtTheEndOfTheNameChangesNothing) {
  const TempFolder folder;
  write(folder / "out" / "", 1, {});
  EXPECT_EQ(read(folder / "out"), 1);
  write(folder / "out" / "", 2, {.replace = true});
  EXPECT_EQ(read(folder / "out"), 2);
}

TEST(HfWriter, SizesAreReadAsTheLibraryWritesThem) {
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_size("1.5MB"), 1'500'000);
  EXPECT_EQ(parse_size("2KiB"), 2048);
  EXPECT_EQ(parse_size("300"), 300);
  for (const char* bad : {"", "GB", "5 GB", "5XB", "-1GB", "0"})
    EXPECT_THAT(error_of([&] { parse_size(bad); }), HasSubstr("is no size")) << bad;
}

}  // namespace
}  // namespace phx
