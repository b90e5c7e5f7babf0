#include "phalanx/checkpoint/torch/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "phalanx/base/file.h"
#include "support/temp_folder.h"

namespace phx {
namespace {

using ::testing::HasSubstr;

std::string archive(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string bytes;
  ZipWriter writer([&](std::span<const std::byte> part) {
    bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  for (const auto& [name, content] : entries) writer.add(name, as_bytes(content));
  writer.finish();
  EXPECT_EQ(writer.size(), bytes.size());
  return bytes;
}

std::string text_of(const ZipEntry& entry) {
  return {reinterpret_cast<const char*>(entry.bytes().data()), entry.bytes().size()};
}

std::string error_of_zip(const std::string& bytes) {
  return error_of([&] { ZipReader(as_bytes(bytes), "x.zip"); });
}

// The classic form: one stored entry without 64-bit fields.
std::string plain_zip(const std::string& name, const std::string& content, uint16_t method,
                      uint16_t flags) {
  std::string bytes;
  const auto number = [&](uint64_t value, int size) {
    bytes.append(reinterpret_cast<const char*>(&value), size_t(size));
  };
  const auto common = [&] {
    number(20, 2);
    number(flags, 2);
    number(method, 2);
    number(0, 8);  // time, date, checksum
    number(content.size(), 4);
    number(content.size(), 4);
    number(name.size(), 2);
    number(0, 2);
  };
  bytes += "PK\3\4";
  common();
  bytes += name + content;
  const size_t directory = bytes.size();
  bytes += "PK\1\2";
  number(20, 2);
  common();
  number(0, 8);
  number(0, 6);
  bytes += name;
  const size_t size = bytes.size() - directory;
  bytes += "PK\5\6";
  number(0, 4);
  number(1, 2);
  number(1, 2);
  number(size, 4);
  number(directory, 4);
  number(7, 2);
  return bytes + "comment";
}

TEST(Zip, ReadsWhatTheWriterWrites) {
  const std::string bytes =
      archive({{"a/data.pkl", "object"}, {"a/data/0", std::string(1000, 'x')}, {"a/none", ""}});
  const ZipReader zip(as_bytes(bytes), "x.zip");
  ASSERT_EQ(zip.entries().size(), 3u);
  EXPECT_EQ(text_of(*zip.find("a/data.pkl")), "object");
  EXPECT_EQ(text_of(*zip.find("a/data/0")), std::string(1000, 'x'));
  EXPECT_EQ(text_of(*zip.find("a/none")), "");
  EXPECT_EQ(zip.find("a"), nullptr);
}

TEST(Zip, EntriesAreAligned) {
  const std::string bytes = archive({{"a", "1"}, {"abcdefg", "22"}, {std::string(70, 'n'), "3"}});
  const ZipReader zip(as_bytes(bytes), "x.zip");
  for (const auto& [name, entry] : zip.entries())
    EXPECT_EQ((reinterpret_cast<const char*>(entry->bytes().data()) - bytes.data()) % 64, 0)
        << name;
}

TEST(Zip, ReadsTheClassicForm) {
  const std::string bytes = plain_zip("name", "content", 0, 0);
  EXPECT_EQ(text_of(*ZipReader(as_bytes(bytes), "x.zip").find("name")), "content");
}

// The content is found wrong when it is used, not when the archive is opened.
TEST(Zip, AFlippedBitInAnEntryIsFoundWhenItIsUsed) {
  const std::string good = archive({{"a/data/0", "content"}, {"a/data/1", "other"}});
  for (size_t i = 0; i < 7 * 8; ++i) {
    std::string bytes = good;
    char& byte = bytes[bytes.find("content") + i / 8];
    byte = char(byte ^ (1 << (i % 8)));
    const ZipReader zip(as_bytes(bytes), "x.zip");
    EXPECT_EQ(text_of(*zip.find("a/data/1")), "other");
    for (int again = 0; again < 2; ++again)
      EXPECT_THAT(error_of([&] { zip.find("a/data/0")->check(); }),
                  HasSubstr("x.zip: the entry 'a/data/0' is damaged: its 7 bytes have the CRC-32"));
  }
}

// torch.serialization.set_crc32_options(False): all checksums are 0, which plain_zip has, too.
TEST(Zip, ADirectoryWithoutChecksumsIsBelieved) {
  const std::string bytes = plain_zip("name", "content", 0, 0);
  EXPECT_NO_THROW(ZipReader(as_bytes(bytes), "x.zip").find("name")->check());
}

TEST(Zip, PackedAndEncryptedEntriesAreRefused) {
  EXPECT_THAT(error_of_zip(plain_zip("name", "content", 8, 0)),
              HasSubstr("x.zip: the entry 'name' is compressed (method 8)"));
  EXPECT_THAT(error_of_zip(plain_zip("name", "content", 0, 1)), HasSubstr("is encrypted"));
}

TEST(Zip, TwoEntriesOfOneNameAreRefused) {
  EXPECT_THAT(error_of_zip(archive({{"a", "1"}, {"a", "2"}})), HasSubstr("'a' is there twice"));
}

TEST(Zip, EveryCutIsNoticed) {
  const std::string bytes = archive({{"a/data.pkl", "object"}, {"a/data/0", "bytes"}});
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THAT(error_of_zip(bytes.substr(0, size)), HasSubstr("x.zip")) << size;
}

// Whatever a flipped byte does, reading stays inside of the file (the sanitizers would tell).
TEST(Zip, FlippedBytesDoNoHarm) {
  const std::string good = archive({{"a/data.pkl", "object"}, {"a/data/0", "bytes"}});
  int64_t refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string bytes = good;
      bytes[i] = char(bytes[i] ^ (1 << bit));
      try {
        const ZipReader zip(as_bytes(bytes), "x.zip");
        size_t total = 0;
        for (const auto& [name, entry] : zip.entries()) total += entry->unchecked().size();
        EXPECT_LE(total, 2 * bytes.size());
      } catch (const std::exception&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 100);  // signatures, sizes, offsets and names: most of the headers
}

TEST(Zip, NumbersBeyondTheFileAreRefused) {
  std::string bytes = plain_zip("name", "content", 0, 0);
  const auto with = [&](size_t at, uint32_t value) {
    std::string changed = bytes;
    std::memcpy(changed.data() + at, &value, sizeof value);
    return error_of_zip(changed);
  };
  const size_t directory = bytes.find("PK\1\2"), end = bytes.find("PK\5\6");
  EXPECT_THAT(with(end + 16, 0x7fffffff), HasSubstr("beyond the"));
  EXPECT_THAT(with(end + 10, 0x32ffff), HasSubstr("cannot list 65535 entries"));
  EXPECT_THAT(with(directory + 42, 0x7fffffff), HasSubstr("should begin at byte 2147483647"));
  EXPECT_THAT(with(directory + 42, 0xffffffff), HasSubstr("lacks its 64-bit sizes"));
  EXPECT_THAT(with(30, 0x78787878), HasSubstr("'name' is called 'xxxx' where its data is"));
}

}  // namespace
}  // namespace phx
