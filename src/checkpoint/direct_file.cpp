#include "phalanx/checkpoint/direct_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "phalanx/base/error.h"

namespace phx {

namespace {

constexpr size_t kMaxWrite = size_t{1} << 30;    // Linux moves at most 2 GiB in one call
constexpr size_t kLargeWrite = size_t{1} << 20;  // worth to begin writing out at once

bool aligned(int64_t number) { return number % DirectFile::kAlignment == 0; }

}  // namespace

DirectFile::DirectFile(const Path& path, int64_t bytes, Disk& disk) : path_(path), disk_(disk) {
  cached_ = FileHandle(disk_.open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!cached_.is_open()) throw_file_error("create", path, errno);
  try {
    if (bytes > 0) reserve(bytes);
    if (bytes < kAlignment) return;
    direct_ = FileHandle(disk_.open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC, 0));
    direct_works_ = direct_.is_open();
  } catch (...) {
    disk_.remove(path_.c_str());
    throw;
  }
}

void DirectFile::reserve(int64_t bytes) {
  while (disk_.reserve(cached_.get(), static_cast<off_t>(bytes)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return;
    throw_file_error("write", path_, errno);
  }
}

DirectFile::~DirectFile() {
  if (!committed_) disk_.remove(path_.c_str());
}

void DirectFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    size_t count = std::min(bytes.size(), kMaxWrite);
    const bool direct = direct_works_ && count >= size_t(kAlignment) && aligned(offset) &&
                        aligned(int64_t(reinterpret_cast<uintptr_t>(bytes.data())));
    if (direct) count -= count % size_t(kAlignment);
    const FileHandle& file = direct ? direct_ : cached_;
    const ssize_t n = disk_.write_at(file.get(), bytes.data(), count, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && direct) {  // some say so only now
      direct_works_ = false;
      continue;
    }
    if (n < 0) throw_file_error("write", path_, errno);
    if (!direct && size_t(n) >= kLargeWrite)  // so that the sync at the end has little left to do
      disk_.start_writing_out(file.get(), static_cast<off_t>(offset), static_cast<off_t>(n));
    bytes = bytes.subspan(size_t(n));
    offset += n;
  }
}

void DirectFile::commit() {
  PHX_ASSERT(!committed_, "committed twice: ", path_.native());
  // Of the file, whichever way its bytes came: direct writes leave sizes and the disk's own cache.
  if (disk_.sync(cached_.get()) != 0) throw_file_error("write", path_, errno);
  for (FileHandle* file : {&direct_, &cached_})
    if (const int error_number = file->close()) throw_file_error("write", path_, error_number);
  sync_folder(path_.parent_path(), disk_);
  committed_ = true;
}

}  // namespace phx
