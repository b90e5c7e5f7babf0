#include "phalanx/checkpoint/shard_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "phalanx/base/error.h"
#include "phalanx/base/math.h"

namespace phx {

namespace {

constexpr int64_t kAlignment = 4096;  // a multiple of what disks ask for
constexpr int64_t kDirectRead = kDirectReadBytes - 2 * kAlignment;  // bytes in one go

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Of this thread: what the disk fills, and what is copied from there while it is in a cache.
std::byte* direct_buffer() {
  thread_local const std::unique_ptr<void, Free> memory(
      std::aligned_alloc(kAlignment, size_t(kDirectReadBytes)));
  PHX_CHECK(memory, "no memory left to read a checkpoint");
  return static_cast<std::byte*>(memory.get());
}

}  // namespace

void drop_from_page_cache(const Path& path) {
  const FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.is_open()) (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
}

ShardReader::ShardReader(const Path& path, const ShardFile& said, bool direct)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), bytes_(said.bytes) {
  if (!file_.is_open()) throw_file_error("read", path, errno);
  std::vector<std::byte> header(size_t(said.header_bytes));
  read(0, header);
  PHX_CHECK(xxh3(header) == said.header_hash, path.string(),
            " is damaged: its header is not what was written");
  if (!direct || bytes_ == 0) return;
  void* pages = ::mmap(nullptr, size_t(bytes_), PROT_READ, MAP_SHARED, file_.get(), 0);
  if (pages == MAP_FAILED) return;
  pages_ = pages;
  direct_ = FileHandle(::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
}

ShardReader::~ShardReader() {
  if (pages_ != nullptr) ::munmap(pages_, size_t(bytes_));
}

void ShardReader::will_read(int64_t offset, int64_t bytes) const {
  if (direct_.is_open()) return;
  (void)::posix_fadvise(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                        POSIX_FADV_WILLNEED);
}

void ShardReader::read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_.get(), out.data(), std::min<size_t>(out.size(), 1 << 30),
                              static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("read", path_, errno);
    PHX_CHECK(n > 0, path_.string(), " is cut off: it ends at byte ", offset);
    out = out.subspan(size_t(n));
    offset += n;
  }
}

// As far as the first, the middle and the last page tell. A system that does not tell says that
// they are.
bool ShardReader::cached(int64_t offset, int64_t bytes) const {
  for (const int64_t at : {offset, offset + bytes / 2, offset + bytes - 1}) {
    unsigned char resident = 1;
    auto* page = static_cast<std::byte*>(pages_) + at / kAlignment * kAlignment;
    if (::mincore(page, 1, &resident) == 0 && (resident & 1) == 0) return false;
  }
  return true;
}

// Pages from `begin` on, into memory that is aligned as they are; `bytes` of them are there, at
// least, or the file is cut off. False where the file system refuses.
bool ShardReader::read_pages(int64_t begin, std::byte* into, int64_t pages_bytes,
                             int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n =
        ::pread(direct_.get(), into + done, size_t(pages_bytes - done), off_t(begin + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) return false;
    if (n < 0) throw_file_error("read", path_, errno);
    done += n;
    // What ends elsewhere than at a page's end ends with the file.
    PHX_CHECK(done >= bytes || (n > 0 && n % kAlignment == 0), path_.string(),
              " is cut off: it ends at byte ", begin + done);
  }
  return true;
}

// Some of the bytes from `offset` on: how many, 0 where the file system refuses.
int64_t ShardReader::read_past_cache(int64_t offset, std::span<std::byte> out) const {
  const int64_t in_page = offset % kAlignment;
  const bool alike = int64_t(reinterpret_cast<uintptr_t>(out.data()) % kAlignment) == in_page;
  int64_t bytes = std::min(int64_t(out.size()), kDirectRead);
  if (alike && in_page == 0 && bytes >= kAlignment) {
    bytes -= bytes % kAlignment;
    return read_pages(offset, out.data(), bytes, bytes) ? bytes : 0;
  }
  if (alike && in_page > 0) bytes = std::min(bytes, kAlignment - in_page);  // the rest goes there
  std::byte* buffer = direct_buffer();
  if (!read_pages(offset - in_page, buffer, round_up(in_page + bytes, kAlignment), in_page + bytes))
    return 0;
  std::memcpy(out.data(), buffer + in_page, size_t(bytes));
  return bytes;
}

std::optional<int64_t> ShardReader::read_blocks(int64_t offset, std::span<std::byte> out,
                                                int64_t block_bytes,
                                                std::span<const uint64_t> hashes) const {
  Xxh3 hash;
  size_t there = 0;  // bytes that have been read
  for (size_t block = 0, at = 0; at < out.size(); ++block) {
    const size_t begin = at, end = std::min(at + size_t(block_bytes), out.size());
    hash.begin();
    while (at < end) {
      if (there == at) there += read_some(offset + int64_t(at), out.subspan(at));
      const size_t known = std::min(there, end);
      hash.add(out.subspan(at, known - at));
      at = known;
    }
    if (hash.value() != hashes[block]) return offset + int64_t(begin);
  }
  return std::nullopt;
}

// From the page cache in parts that are still in the processor's cache when their checksum is
// taken.
size_t ShardReader::read_some(int64_t offset, std::span<std::byte> out) const {
  constexpr size_t kPart = 256 << 10;
  if (direct_.is_open() && !cached(offset, std::min(int64_t(out.size()), kDirectRead)))
    if (const int64_t bytes = read_past_cache(offset, out); bytes > 0) return size_t(bytes);
  const size_t bytes = std::min(kPart, out.size());
  read(offset, out.first(bytes));
  return bytes;
}

}  // namespace phx
