#include "phalanx/checkpoint/direct_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "phalanx/base/error.h"
#include "support/faulty_disk.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using phx::testing::FaultyDisk;
using ::testing::HasSubstr;

constexpr int64_t kPage = DirectFile::kAlignment;

// Bytes at a multiple of a page, each with a number of its own.
struct Pages {
  explicit Pages(int64_t size)
      : memory(std::aligned_alloc(kPage, size_t((size + kPage - 1) / kPage * kPage)), std::free),
        bytes(static_cast<std::byte*>(memory.get()), size_t(size)) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte((i * 2654435761u) >> 13);
  }
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
  std::shared_ptr<void> memory;
  std::span<std::byte> bytes;
};

// A file system that knows nothing of direct writes, and says so when a file is opened, or later.
class NoDirectDisk : public Disk {
 public:
  explicit NoDirectDisk(bool at_open) : at_open_(at_open) {}
  int open(const char* path, int flags, mode_t mode) override {
    if (at_open_ && (flags & O_DIRECT) != 0) {
      errno = EINVAL;
      return -1;
    }
    const int descriptor = Disk::open(path, flags & ~O_DIRECT, mode);
    if ((flags & O_DIRECT) != 0) direct_ = descriptor;
    return descriptor;
  }
  ssize_t write_at(int descriptor, const void* data, size_t bytes, off_t offset) override {
    if (descriptor != direct_) return Disk::write_at(descriptor, data, bytes, offset);
    ++refused;
    errno = EINVAL;
    return -1;
  }
  int reserve(int, off_t) override {
    errno = EOPNOTSUPP;
    return -1;
  }
  int refused = 0;

 private:
  bool at_open_;
  int direct_ = -1;
};

TEST(DirectFile, HoldsWhatThreadsWroteInAnyOrderWhateverTheSize) {
  for (const int64_t size : {int64_t{1}, kPage - 1, kPage, kPage + 1, 40 * kPage + 17}) {
    const TempFolder folder;
    const Pages pages(size);
    DirectFile file(folder / "file", size, Disk::real());
    std::vector<std::thread> threads;
    for (int64_t turn = 0; turn < 2; ++turn)  // one takes the odd parts of three pages
      threads.emplace_back([&, turn] {
        for (int64_t at = turn * 3 * kPage; at < size; at += 6 * kPage)
          file.write_at(at,
                        pages.bytes.subspan(size_t(at), size_t(std::min(3 * kPage, size - at))));
      });
    for (std::thread& thread : threads) thread.join();
    file.commit();
    EXPECT_EQ(read_file(folder / "file"), pages.text()) << size;
  }
}

TEST(DirectFile, TakesPartsThatBeginAndEndAnywhere) {
  const TempFolder folder;
  const Pages pages(10 * kPage);
  DirectFile file(folder / "file", 10 * kPage, Disk::real());
  int64_t at = 0;
  for (const int64_t count : {int64_t{100}, kPage - 100, 2 * kPage + 5, 3 * kPage, 4 * kPage - 5}) {
    file.write_at(at, pages.bytes.subspan(size_t(at), size_t(count)));
    at += count;
  }
  ASSERT_EQ(at, 10 * kPage);
  file.commit();
  EXPECT_EQ(read_file(folder / "file"), pages.text());
}

TEST(DirectFile, WritesAsUsualWhereTheFileSystemRefuses) {
  for (const bool at_open : {true, false}) {
    const TempFolder folder;
    const Pages pages(9 * kPage + 1);
    NoDirectDisk disk(at_open);
    DirectFile file(folder / "file", 9 * kPage + 1, disk);
    EXPECT_EQ(file.direct(), !at_open);
    for (int64_t at = 0; at < 9 * kPage; at += 3 * kPage)
      file.write_at(at, pages.bytes.subspan(size_t(at), size_t(3 * kPage)));
    file.write_at(9 * kPage, pages.bytes.last(1));
    EXPECT_FALSE(file.direct());
    EXPECT_EQ(disk.refused, at_open ? 0 : 1) << "asked once";
    file.commit();
    EXPECT_EQ(read_file(folder / "file"), pages.text());
  }
}

TEST(DirectFile, IsGoneWithoutACommitAndNamedByEveryError) {
  const TempFolder folder;
  const Pages pages(2 * kPage);
  { DirectFile file(folder / "file", 2 * kPage, Disk::real()); }
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  for (const int64_t call : {1, 2, 4, 5}) {  // open, reserve, write, sync
    FaultyDisk bad;
    bad.fail_from = bad.fail_until = call;
    bad.error = ENOSPC;
    EXPECT_THAT(error_of([&] {
                  DirectFile file(folder / "file", 2 * kPage, bad);
                  file.write_at(0, pages.bytes);
                  file.commit();
                }),
                HasSubstr((folder / "file").string() + ": No space left on device"))
        << call;
    EXPECT_FALSE(std::filesystem::exists(folder / "file")) << call;
  }
  // The third call opens it for direct writes, which it can do without.
  FaultyDisk without;
  without.fail_from = without.fail_until = 3;
  {
    DirectFile file(folder / "file", 2 * kPage, without);
    EXPECT_FALSE(file.direct());
    file.write_at(0, pages.bytes);
    file.commit();
  }
  EXPECT_EQ(read_file(folder / "file"), pages.text());
  write_file(folder / "file", "older");
  EXPECT_THAT(error_of([&] { DirectFile(folder / "file", 1, Disk::real()); }),
              HasSubstr("cannot create " + (folder / "file").string()));
  EXPECT_EQ(read_file(folder / "file"), "older");
}

}  // namespace
}  // namespace phx
