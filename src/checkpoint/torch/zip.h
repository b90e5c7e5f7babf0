// Zip archives as torch.save writes them: entries stored without compression, sizes beyond 4 GiB,
// checksums after the data. The reader trusts the directory at the end and checks every offset; an
// entry's bytes are checked when somebody is about to use them, since archives are large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

// Points into the archive. Any number of threads may use it.
class ZipEntry {
 public:
  ZipEntry(std::span<const std::byte> bytes, uint32_t checksum, std::string where)
      : bytes_(bytes), checksum_(checksum), where_(std::move(where)) {}

  // Where the entry lies: nothing has been read of it yet.
  std::span<const std::byte> unchecked() const { return bytes_; }
  // Throws unless the bytes have the CRC-32 that the archive's directory says, which is looked at
  // once. A directory that says 0 says nothing: torch leaves the checksums out when it is told to.
  void check() const;
  std::span<const std::byte> bytes() const {
    check();
    return bytes_;
  }

 private:
  std::span<const std::byte> bytes_;
  uint32_t checksum_;
  std::string where_;  // archive and entry, for errors
  mutable std::mutex mutex_;
  mutable bool checked_ = false;
};

class ZipReader {
 public:
  using Entries = std::map<std::string, std::shared_ptr<const ZipEntry>, std::less<>>;

  // `bytes` is the whole archive and must outlive the reader; `where` names it in errors.
  ZipReader(std::span<const std::byte> bytes, const std::string& where);

  const Entries& entries() const { return entries_; }
  const ZipEntry* find(std::string_view name) const;

  static bool looks_like_zip(std::span<const std::byte> bytes);

 private:
  struct Directory {
    uint64_t begin, size, count;
  };
  Directory find_directory() const;
  void read_entry(uint64_t& at, uint64_t end);
  uint64_t data_begin(std::string_view name, uint64_t header) const;

  std::span<const std::byte> bytes_;
  std::string where_;
  Entries entries_;
};

// Streams an archive through `sink`. Entries begin at multiples of 64 bytes from the archive's
// start, as torch has them, so that a mapped tensor is aligned.
class ZipWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit ZipWriter(Sink sink) : sink_(std::move(sink)) {}

  void add(std::string_view name, std::span<const std::byte> bytes);
  // An entry in pieces: `size` bytes come by append.
  void begin(std::string_view name, uint64_t size);
  void append(std::span<const std::byte> bytes);
  void end();

  void finish();                           // the directory
  uint64_t size() const { return size_; }  // bytes written so far

 private:
  struct Entry {
    std::string name;
    uint64_t header, size;
    uint32_t checksum;
  };
  void write(std::string_view bytes);

  Sink sink_;
  std::vector<Entry> entries_;
  uint64_t size_ = 0, missing_ = 0;
};

}  // namespace phx
