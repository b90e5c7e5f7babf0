// An open file of a checkpoint. Any number of threads may read from it.
#pragma once

#include <optional>
#include <span>

#include "phalanx/base/file.h"
#include "phalanx/checkpoint/manifest.h"

namespace phx {

// What a thread keeps to read past the page cache.
inline constexpr int64_t kDirectReadBytes = (4 << 20) + 2 * 4096;

class ShardReader {
 public:
  // Checks the header against what the manifest says. `direct`: bytes that are not in the page
  // cache come past it, where the file system lets them.
  ShardReader(const Path& path, const ShardFile& said, bool direct);
  ~ShardReader();
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;

  const Path& path() const { return path_; }

  // The system may begin to fetch these bytes.
  void will_read(int64_t offset, int64_t bytes) const;

  // Bytes from `offset` on, which are blocks with these checksums, the last one maybe shorter.
  // Returns where the first one begins that is not what was written.
  std::optional<int64_t> read_blocks(int64_t offset, std::span<std::byte> out, int64_t block_bytes,
                                     std::span<const uint64_t> hashes) const;

 private:
  void read(int64_t offset, std::span<std::byte> out) const;
  bool cached(int64_t offset, int64_t bytes) const;
  size_t read_some(int64_t offset, std::span<std::byte> out) const;
  int64_t read_past_cache(int64_t offset, std::span<std::byte> out) const;
  bool read_pages(int64_t begin, std::byte* into, int64_t pages_bytes, int64_t bytes) const;

  Path path_;
  FileHandle file_, direct_;
  int64_t bytes_;
  void* pages_ = nullptr;  // the file, mapped to ask which of it is in the page cache
};

// What the page cache has of a synced file goes, so that the next reads ask the disk. A wish: no
// error where the system does not grant it.
void drop_from_page_cache(const Path& path);

}  // namespace phx
