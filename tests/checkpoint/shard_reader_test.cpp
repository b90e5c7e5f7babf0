#include "phalanx/checkpoint/shard_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHeader = 16, kBlock = 100'000;

// A header and blocks, the last one shorter; not in the page cache, so that they come from the
// disk.
class ShardReaderTest : public ::testing::TestWithParam<bool> {
 protected:
  ShardReaderTest() : content_(size_t(kHeader + 50 * kBlock + 777), '\0') {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = char((i * 2654435761u) >> 11);
    for (int64_t at = kHeader; at < int64_t(content_.size()); at += kBlock)
      hashes_.push_back(xxh3(as_bytes(content_).subspan(
          size_t(at), std::min(size_t(kBlock), content_.size() - size_t(at)))));
    said_ = {.name = "shard",
             .bytes = int64_t(content_.size()),
             .header_bytes = kHeader,
             .header_hash = xxh3(as_bytes(content_).first(kHeader))};
    put(content_);
  }

  void put(const std::string& content) {
    write_file(path(), content);
    forget();
  }
  void forget() {
    const FileHandle file(::open(path().c_str(), O_RDONLY));
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  Path path() const { return folder_ / "shard"; }

  // All blocks, into memory that begins so many bytes behind a page.
  std::optional<int64_t> read(const ShardReader& reader, int64_t behind, std::string& out) {
    std::vector<std::byte> memory(content_.size() + 8192);
    void* start = memory.data();
    size_t space = memory.size();
    std::byte* page = static_cast<std::byte*>(std::align(4096, 1, start, space));
    const std::span<std::byte> into(page + behind, content_.size() - size_t(kHeader));
    const auto bad = reader.read_blocks(kHeader, into, kBlock, hashes_);
    out.assign(reinterpret_cast<const char*>(into.data()), into.size());
    return bad;
  }

  TempFolder folder_;
  std::string content_;
  std::vector<uint64_t> hashes_;
  ShardFile said_;
};

// Where the memory lies as the file does (behind = kHeader) bytes go there at once, elsewhere not.
TEST_P(ShardReaderTest, ReadsTheSameFromDiskAndPageCacheToAnyPlace) {
  for (const int64_t behind : {kHeader, int64_t{0}, int64_t{17}}) {
    forget();
    const ShardReader reader(path(), said_, GetParam());
    for (int again = 0; again < 2; ++again) {
      std::string found;
      EXPECT_EQ(read(reader, behind, found), std::nullopt) << behind;
      EXPECT_TRUE(found == content_.substr(kHeader)) << behind;
      (void)read_file(path());  // now it is in the page cache
    }
  }
}

TEST_P(ShardReaderTest, SaysWhichBlockIsNotWhatWasWritten) {
  for (const int64_t block : {0, 7, 49, 50}) {
    std::string bad = content_;
    const int64_t begin = kHeader + block * kBlock;
    bad[size_t(begin + 500)] ^= 4;
    put(bad);
    const ShardReader reader(path(), said_, GetParam());
    for (const int64_t behind : {kHeader, int64_t{0}}) {
      std::string found;
      EXPECT_EQ(read(reader, behind, found), begin);
    }
  }
}

TEST_P(ShardReaderTest, AFileThatIsCutWhileItIsReadIsAnError) {
  for (const int64_t size : {kHeader + 30 * kBlock, int64_t{4096 * 40}, int64_t{4096 * 40 + 1}}) {
    put(content_);
    const ShardReader reader(path(), said_, GetParam());
    std::filesystem::resize_file(path(), uintmax_t(size));
    for (const int64_t behind : {kHeader, int64_t{0}}) {
      std::string found;
      EXPECT_THAT(error_of([&] { (void)read(reader, behind, found); }),
                  HasSubstr(path().string() + " is cut off: it ends at byte"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, ShardReaderTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "PastCache" : "ByCache"; });

}  // namespace
}  // namespace phx
