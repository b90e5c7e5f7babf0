#include "phalanx/checkpoint/torch/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/base/file.h"
#include "phalanx/base/format.h"
#include "phalanx/base/math.h"
#include "phalanx/checkpoint/torch/pickle.h"

namespace phx {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50, kDescriptor = 0x08074b50;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56;
constexpr uint64_t kLocator64Size = 20, kMaxComment = 65535;
constexpr uint16_t kZip64Tag = 1, kPaddingTag = 0x4246;  // "FB", as torch pads
constexpr uint16_t kVersion64 = 45;                      // of the format: the first with 64 bits
constexpr uint16_t kEncrypted = 1, kChecksumLater = 8, kUtf8 = 0x800;
constexpr uint64_t kAlignment = 64;
constexpr uint32_t kIn64 = 0xffffffff;  // the real number stands in the 64-bit field

template <class T>
T number_at(std::span<const std::byte> bytes, uint64_t at) {  // the caller has checked the range
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// The 64-bit numbers of a directory entry, in this order, for those fields that say so.
struct Sizes64 {
  std::span<const std::byte> extra;
  uint64_t at = 0, end = 0;

  explicit Sizes64(std::span<const std::byte> extra) : extra(extra) {
    for (uint64_t tag_at = 0; extra.size() >= 4 && tag_at <= extra.size() - 4;) {
      const uint64_t size = number_at<uint16_t>(extra, tag_at + 2);
      if (size > extra.size() - tag_at - 4) return;
      if (number_at<uint16_t>(extra, tag_at) == kZip64Tag) {
        at = tag_at + 4;
        end = at + size;
        return;
      }
      tag_at += 4 + size;
    }
  }
  bool take(uint64_t& value) {
    if (value != kIn64) return true;
    if (end - at < 8) return false;
    value = number_at<uint64_t>(extra, at);
    at += 8;
    return true;
  }
};

class Bytes {  // little-endian numbers, one after the other
 public:
  template <class... T>
  explicit Bytes(T... values) {
    (add(values), ...);
  }
  template <class T>
  void add(T value) {
    const auto at = text_.size();
    text_.resize(at + sizeof(T));
    std::memcpy(text_.data() + at, &value, sizeof(T));
  }
  void add_text(std::string_view text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

uint32_t crc32_of(uint32_t before, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(
      crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

void ZipEntry::check() const {
  if (checksum_ == 0) return;
  const std::lock_guard lock(mutex_);
  if (checked_) return;
  const uint32_t found = crc32_of(0, bytes_);
  PHX_CHECK(found == checksum_, where_, " is damaged: its ", bytes_.size(),
            " bytes have the CRC-32 ", found, ", and were written with ", checksum_);
  checked_ = true;
}

bool ZipReader::looks_like_zip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 &&
         (number_at<uint32_t>(bytes, 0) == kLocalHeader || number_at<uint32_t>(bytes, 0) == kEnd);
}

ZipReader::ZipReader(std::span<const std::byte> bytes, const std::string& where)
    : bytes_(bytes), where_(where) {
  const Directory directory = find_directory();
  uint64_t at = directory.begin;
  for (uint64_t i = 0; i < directory.count; ++i) read_entry(at, directory.begin + directory.size);
}

ZipReader::Directory ZipReader::find_directory() const {
  PHX_CHECK(bytes_.size() >= kEndSize, where_, " has ", bytes_.size(),
            " bytes, too few for a zip archive: it is cut off, or something else");
  // From behind: the record's comment, which may hold anything, comes after it.
  uint64_t end = bytes_.size() - kEndSize;
  const uint64_t first = end - std::min(end, kMaxComment);
  while (number_at<uint32_t>(bytes_, end) != kEnd ||
         number_at<uint16_t>(bytes_, end + 20) != bytes_.size() - end - kEndSize) {
    PHX_CHECK(end > first, where_,
              " has no directory at its end, which a zip archive has: it is cut off, or "
              "something else");
    --end;
  }
  Directory directory{number_at<uint32_t>(bytes_, end + 16), number_at<uint32_t>(bytes_, end + 12),
                      number_at<uint16_t>(bytes_, end + 10)};
  uint64_t limit = end;
  if (end >= kLocator64Size && number_at<uint32_t>(bytes_, end - kLocator64Size) == kLocator64) {
    const uint64_t at = number_at<uint64_t>(bytes_, end - kLocator64Size + 8);
    limit = end - kLocator64Size;
    PHX_CHECK(limit >= kEnd64Size && at <= limit - kEnd64Size &&
                  number_at<uint32_t>(bytes_, at) == kEnd64,
              where_, ": the 64-bit end of the zip directory should be at byte ", at,
              ", but is not");
    directory = {number_at<uint64_t>(bytes_, at + 48), number_at<uint64_t>(bytes_, at + 40),
                 number_at<uint64_t>(bytes_, at + 32)};
    limit = at;
  }
  PHX_CHECK(directory.begin <= limit && directory.size <= limit - directory.begin, where_,
            ": the zip directory should be ", directory.size, " bytes at ", directory.begin,
            ", which is beyond the ", limit, " before its end record");
  PHX_CHECK(directory.count <= directory.size / kCentralSize, where_, ": the zip directory of ",
            directory.size, " bytes cannot list ", directory.count, " entries");
  return directory;
}

void ZipReader::read_entry(uint64_t& at, uint64_t end) {
  PHX_CHECK(end - at >= kCentralSize && number_at<uint32_t>(bytes_, at) == kCentralHeader, where_,
            ": the zip directory is broken at byte ", at);
  const auto flags = number_at<uint16_t>(bytes_, at + 8);
  const auto method = number_at<uint16_t>(bytes_, at + 10);
  const auto checksum = number_at<uint32_t>(bytes_, at + 16);
  uint64_t stored = number_at<uint32_t>(bytes_, at + 20);
  uint64_t size = number_at<uint32_t>(bytes_, at + 24);
  uint64_t header = number_at<uint32_t>(bytes_, at + 42);
  const uint64_t name_size = number_at<uint16_t>(bytes_, at + 28);
  const uint64_t extra_size = number_at<uint16_t>(bytes_, at + 30);
  const uint64_t comment_size = number_at<uint16_t>(bytes_, at + 32);
  PHX_CHECK(name_size + extra_size + comment_size <= end - at - kCentralSize, where_,
            ": the zip directory is broken at byte ", at);
  const std::string name(reinterpret_cast<const char*>(bytes_.data()) + at + kCentralSize,
                         name_size);
  Sizes64 wide(bytes_.subspan(at + kCentralSize + name_size, extra_size));
  PHX_CHECK(wide.take(size) && wide.take(stored) && wide.take(header), where_, ": the entry '",
            printable(name), "' lacks its 64-bit sizes");
  PHX_CHECK((flags & kEncrypted) == 0, where_, ": the entry '", printable(name), "' is encrypted");
  PHX_CHECK(method == 0 && stored == size, where_, ": the entry '", printable(name),
            "' is compressed (method ", method,
            "); torch stores its entries, so this archive was packed by something else");
  const uint64_t begin = data_begin(name, header);
  PHX_CHECK(size <= bytes_.size() - begin, where_, ": the entry '", printable(name), "' ends at ",
            begin, " + ", size, ", but there are ", bytes_.size(), " bytes: it is cut off");
  auto entry =
      std::make_shared<const ZipEntry>(bytes_.subspan(begin, size), checksum,
                                       str_cat(where_, ": the entry '", printable(name), "'"));
  PHX_CHECK(entries_.emplace(name, std::move(entry)).second, where_, ": the entry '",
            printable(name), "' is there twice");
  at += kCentralSize + name_size + extra_size + comment_size;
}

// Behind the entry's own header, which repeats the name and may have other fields of any length.
uint64_t ZipReader::data_begin(std::string_view name, uint64_t header) const {
  PHX_CHECK(bytes_.size() >= kLocalSize && header <= bytes_.size() - kLocalSize &&
                number_at<uint32_t>(bytes_, header) == kLocalHeader,
            where_, ": the entry '", printable(name), "' should begin at byte ", header,
            ", but does not");
  const uint64_t name_size = number_at<uint16_t>(bytes_, header + 26);
  const uint64_t extra_size = number_at<uint16_t>(bytes_, header + 28);
  const uint64_t left = bytes_.size() - header - kLocalSize;
  PHX_CHECK(name_size + extra_size <= left, where_, ": the entry '", printable(name),
            "' is cut off");
  const std::string_view own(reinterpret_cast<const char*>(bytes_.data()) + header + kLocalSize,
                             name_size);
  PHX_CHECK(own == name, where_, ": the entry '", printable(name), "' is called '", printable(own),
            "' where its data is");
  return header + kLocalSize + name_size + extra_size;
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second.get();
}

void ZipWriter::write(std::string_view bytes) {
  sink_(as_bytes(bytes));
  size_ += bytes.size();
}

void ZipWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  begin(name, bytes.size());
  append(bytes);
  end();
}

void ZipWriter::begin(std::string_view name, uint64_t size) {
  PHX_ASSERT(missing_ == 0, "the entry before is not complete");
  entries_.push_back({std::string(name), size_, size, 0});
  // The sizes are always written with 64 bits: one form for small and large entries.
  Bytes extra(kZip64Tag, uint16_t{16}, size, size);
  const uint64_t before = size_ + kLocalSize + name.size() + extra.text().size() + 4;
  const uint64_t padding = round_up(int64_t(before), kAlignment) - before;
  extra.add(kPaddingTag);
  extra.add(static_cast<uint16_t>(padding));
  extra.add_text(std::string(padding, 'Z'));
  Bytes header(kLocalHeader, kVersion64, uint16_t(kChecksumLater | kUtf8), uint16_t{0}, uint32_t{0},
               uint32_t{0}, kIn64, kIn64, static_cast<uint16_t>(name.size()),
               static_cast<uint16_t>(extra.text().size()));
  header.add_text(name);
  header.add_text(extra.text());
  write(header.text());
  missing_ = size;
}

void ZipWriter::append(std::span<const std::byte> bytes) {
  PHX_ASSERT(bytes.size() <= missing_, "more bytes than the entry ", entries_.back().name, " has");
  Entry& entry = entries_.back();
  entry.checksum = crc32_of(entry.checksum, bytes);
  missing_ -= bytes.size();
  sink_(bytes);
  size_ += bytes.size();
}

void ZipWriter::end() {
  PHX_ASSERT(missing_ == 0, missing_, " bytes of ", entries_.back().name, " are missing");
  const Entry& entry = entries_.back();
  write(Bytes(kDescriptor, entry.checksum, entry.size, entry.size).text());
}

void ZipWriter::finish() {
  const uint64_t begin = size_;
  for (const Entry& entry : entries_) {
    Bytes record(kCentralHeader, kVersion64, kVersion64, uint16_t(kChecksumLater | kUtf8),
                 uint16_t{0}, uint32_t{0}, entry.checksum, kIn64, kIn64,
                 static_cast<uint16_t>(entry.name.size()), uint16_t{28}, uint16_t{0}, uint16_t{0},
                 uint16_t{0}, uint32_t{0}, kIn64);
    record.add_text(entry.name);
    record.add_text(Bytes(kZip64Tag, uint16_t{24}, entry.size, entry.size, entry.header).text());
    write(record.text());
  }
  const uint64_t directory = size_ - begin, end64 = size_, count = entries_.size();
  write(Bytes(kEnd64, kEnd64Size - 12, kVersion64, kVersion64, uint32_t{0}, uint32_t{0}, count,
              count, directory, begin)
            .text());
  write(Bytes(kLocator64, uint32_t{0}, end64, uint32_t{1}).text());
  write(Bytes(kEnd, uint16_t{0}, uint16_t{0}, uint16_t{0xffff}, uint16_t{0xffff}, kIn64, kIn64,
              uint16_t{0})
            .text());
}

}  // namespace phx
