#include "phalanx/base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>

#include "phalanx/base/error.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

int64_t count_files(const TempFolder& folder) {
  return std::distance(std::filesystem::directory_iterator(folder.path()), {});
}

TEST(File, WhatIsWrittenIsRead) {
  const TempFolder folder;
  const std::string content("a\0b\nc", 5);
  write_file(folder / "x", content);
  EXPECT_EQ(read_file(folder / "x"), content);
  EXPECT_EQ(count_files(folder), 1);
}

TEST(File, SystemFilesWithoutASizeAreReadWhole) {
  EXPECT_THAT(read_file("/proc/self/status"), HasSubstr("Pid:"));
}

TEST(File, MissingFileIsNamedWithAHint) {
  const std::string error = error_of([] { read_file("/no/such/file"); });
  EXPECT_EQ(error,
            "cannot read /no/such/file: No such file or directory\n"
            "  hint: check the spelling, and that the folder exists");
}

TEST(File, AFullDiskSaysSo) {
  // /dev/full takes an open and refuses every write with ENOSPC.
  AppendFile file("/dev/full");
  EXPECT_THAT(error_of([&] { file.write("x"); }),
              HasSubstr("/dev/full: No space left on device\n  hint: the disk is full"));
}

TEST(File, AFolderIsNotAFile) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { read_file(folder.path()); }), HasSubstr("this is a folder"));
  EXPECT_THAT(error_of([&] { MappedFile file(folder.path()); }), HasSubstr("this is a folder"));
  EXPECT_THAT(error_of([&] { write_file(folder.path(), "x"); }), HasSubstr("this is a folder"));
}

TEST(AtomicFile, WithoutCommitTheOldFileStays) {
  const TempFolder folder;
  write_file(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new");
    EXPECT_EQ(read_file(folder / "x"), "old");
  }
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(count_files(folder), 1) << "the temporary file is still there";
}

TEST(AtomicFile, TwoWritersOfOneFileDoNotMix) {
  const TempFolder folder;
  AtomicFile a(folder / "x"), b(folder / "x");
  a.write("aaa");
  b.write("b");
  a.commit();
  EXPECT_EQ(read_file(folder / "x"), "aaa");
  b.commit();
  EXPECT_EQ(read_file(folder / "x"), "b");
  EXPECT_EQ(count_files(folder), 1);
}

TEST(AtomicFile, AFailedWriteLeavesTheOldFileAndNoRubbish) {
  const TempFolder folder;
  write_file(folder / "x", "old");
  // The process may write 4 bytes to a file from here on; SIGXFSZ ignored, it becomes EFBIG.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] { write_file(folder / "x", "longer than that"); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, HasSubstr("cannot write " + (folder / "x").string() + ": File too large"));
  EXPECT_EQ(read_file(folder / "x"), "old");
  EXPECT_EQ(count_files(folder), 1);
}

TEST(AtomicFile, PermissionsFollowTheUmask) {
  const TempFolder folder;
  const mode_t mask = umask(027);
  write_file(folder / "x", "");
  umask(mask);
  struct stat info {};
  ASSERT_EQ(stat((folder / "x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, MissingFolderIsAnError) {
  const TempFolder folder;
  EXPECT_THAT(error_of([&] { AtomicFile file(folder / "no" / "x"); }),
              HasSubstr("No such file or directory"));
  make_folder(folder / "no");
  make_folder(folder / "no");
  AtomicFile file(folder / "no" / "x");
  file.commit();
  EXPECT_EQ(read_file(folder / "no" / "x"), "");
}

TEST(AppendFile, AddsToWhatIsThere) {
  const TempFolder folder;
  write_file(folder / "x", "1\n");
  AppendFile file(folder / "x");
  file.write("2\n");
  EXPECT_EQ(read_file(folder / "x"), "1\n2\n");
  file.write("3\n");
  EXPECT_EQ(read_file(folder / "x"), "1\n2\n3\n");
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TempFolder folder;
  write_file(folder / "x", "hello");
  MappedFile file(folder / "x");
  MappedFile other(std::move(file));
  EXPECT_EQ(file.size(), 0);
  ASSERT_EQ(other.size(), 5);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), 5), "hello");
}

TEST(MappedFile, AnEmptyFileIsAnEmptySpan) {
  const TempFolder folder;
  write_file(folder / "x", "");
  EXPECT_TRUE(MappedFile(folder / "x").bytes().empty());
}

}  // namespace
}  // namespace phx
