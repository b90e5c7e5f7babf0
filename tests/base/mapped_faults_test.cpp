#include "phalanx/base/mapped_faults.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <numeric>
#include <vector>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Path write_bytes(const TempFolder& folder, size_t bytes) {
  std::ofstream(folder / "data") << std::string(bytes, 'x');
  return folder / "data";
}

int64_t sum(const MappedFile& file) {
  return std::accumulate(file.bytes().begin(), file.bytes().end(), int64_t{0},
                         [](int64_t sum, std::byte b) { return sum + int64_t(b); });
}

TEST(MappedFaults, LostPagesReadAsZerosAndTheCheckNamesTheFileAndItsSizes) {
  handle_mapped_faults(OnMappedFault::note);
  const TempFolder folder;
  const Path path = write_bytes(folder, 100000);
  {
    const MappedFile file(path);
    check_mapped_files();
    std::filesystem::resize_file(path, 4096);
    EXPECT_EQ(sum(file), 4096 * 'x') << "no bus error";
    const std::string error = error_of([] { check_mapped_files(); });
    EXPECT_THAT(error, AllOf(HasSubstr(path.string() + " cannot be read any more"),
                             HasSubstr("had 100000 bytes when it was opened, and has 4096 now"),
                             HasSubstr("hint: ")));
    error_of([] { check_mapped_files(); });  // as long as it is in use
  }
  error_of([] { check_mapped_files(); });  // once more, for who has closed it meanwhile
  check_mapped_files();
}

TEST(MappedFaults, AFileThatLosesLessThanAPageIsFoundToo) {
  handle_mapped_faults(OnMappedFault::note);
  const TempFolder folder;
  const Path path = write_bytes(folder, 5000);
  const MappedFile file(path);
  std::filesystem::resize_file(path, 4990);  // the page stays, and its end reads as zeros
  EXPECT_EQ(sum(file), 4990 * 'x');
  EXPECT_THAT(error_of([] { check_mapped_files(); }), HasSubstr("and has 4990 now"));
}

TEST(MappedFaults, OfManyFilesEveryOneIsLookedAtInTurn) {
  handle_mapped_faults(OnMappedFault::note);
  const TempFolder folder;
  std::vector<MappedFile> files;
  for (int i = 0; i < 200; ++i) {
    const Path path = folder / std::to_string(i);
    std::ofstream(path) << "a few bytes";
    files.emplace_back(path);
  }
  for (const int victim : {0, 77, 199}) {
    std::filesystem::resize_file(folder / std::to_string(victim), 3);
    int found = 0;
    for (int check = 0; check < 4; ++check) {  // 200 files are four turns
      try {
        check_mapped_files();
      } catch (const std::exception&) {
        ++found;
      }
    }
    EXPECT_GE(found, 1) << victim;
    std::filesystem::resize_file(folder / std::to_string(victim), 11);
  }
}

TEST(MappedFaults, AFileThatIsReplacedRemovedOrGrowsStaysReadable) {
  handle_mapped_faults(OnMappedFault::note);
  const TempFolder folder;
  const Path path = write_bytes(folder, 5000);
  const MappedFile file(path);
  std::filesystem::resize_file(path, 9000);
  check_mapped_files();
  write_file(path, "short");  // by rename: the mapped file is another one
  check_mapped_files();
  std::filesystem::remove(path);
  check_mapped_files();
  EXPECT_EQ(sum(file), 5000 * 'x');
}

TEST(MappedFaults, WhereNobodyChecksTheProgramEndsWithWords) {
  const TempFolder folder;
  const Path path = write_bytes(folder, 100000);
  EXPECT_EXIT(
      {
        handle_mapped_faults(OnMappedFault::end_program);
        const MappedFile file(path);
        std::filesystem::resize_file(path, 0);
        std::exit(sum(file) == 0 ? 7 : 8);
      },
      ::testing::ExitedWithCode(1), "error: .*/data cannot be read any more: it became shorter");
}

TEST(MappedFaults, OtherBusErrorsStayWhatTheyAre) {
  const TempFolder folder;
  const Path path = write_bytes(folder, 8192);
  EXPECT_EXIT(
      {
        handle_mapped_faults(OnMappedFault::note);
        const FileHandle file(::open(path.c_str(), O_RDONLY));
        const auto* bytes = static_cast<const volatile char*>(
            ::mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, file.get(), 0));
        std::filesystem::resize_file(path, 0);
        std::exit(bytes[5000]);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace phx
