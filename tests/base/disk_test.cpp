#include "phalanx/base/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

TEST(Disk, WritesBytesWhereTheyBelong) {
  const TempFolder folder;
  const std::string path = folder.path() / "file";
  Disk& disk = Disk::real();
  const int file = disk.open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_GE(file, 0);
  EXPECT_EQ(disk.write(file, "hello", 5), 5);
  EXPECT_EQ(disk.write_at(file, "J", 1, 0), 1);
  EXPECT_EQ(disk.sync(file), 0);
  ::close(file);
  EXPECT_EQ(read_file(path), "Jello");
}

TEST(Disk, ReservingGivesAFileItsSize) {
  const TempFolder folder;
  const std::string path = folder.path() / "file";
  const int file = Disk::real().open(path.c_str(), O_WRONLY | O_CREAT, 0644);
  if (Disk::real().reserve(file, 4096) == 0) {
    EXPECT_EQ(std::filesystem::file_size(path), 4096u);
  } else {
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  ::close(file);
}

TEST(Disk, RenamesMakesAndRemoves) {
  const TempFolder folder;
  const std::string a = folder.path() / "a", b = folder.path() / "b";
  Disk& disk = Disk::real();
  EXPECT_EQ(disk.make_folder(a.c_str()), 0);
  EXPECT_EQ(disk.rename(a.c_str(), b.c_str()), 0);
  EXPECT_TRUE(std::filesystem::is_directory(b));
  EXPECT_EQ(disk.remove(b.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(b));
  EXPECT_EQ(disk.remove(b.c_str()), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Disk, TwoFilesChangePlaces) {
  const TempFolder folder;
  const std::string a = folder.path() / "a", b = folder.path() / "b";
  write_file(a, "1");
  write_file(b, "2");
  if (Disk::real().exchange(a.c_str(), b.c_str()) != 0) GTEST_SKIP() << "not on this file system";
  EXPECT_EQ(read_file(a), "2");
  EXPECT_EQ(read_file(b), "1");
}

}  // namespace
}  // namespace phx
