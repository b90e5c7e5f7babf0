// A new file of a known size that several threads write at once. Bytes that lie and go to multiples
// of kAlignment pass by the page cache where the file system lets them: a copy less, and what the
// page cache held (token files, say) stays there. All others, and all bytes on file systems that
// refuse, are written as usual.
//
// It has its name from the start, so it belongs into a folder that is not read until it is
// complete. Without a commit it is removed.
#pragma once

#include <atomic>
#include <span>

#include "phalanx/base/file.h"

namespace phx {

class DirectFile {
 public:
  static constexpr int64_t kAlignment = 4096;  // a multiple of what disks ask for

  DirectFile(const Path& path, int64_t bytes, Disk& disk);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // Any thread, in any order; parts do not overlap.
  void write_at(int64_t offset, std::span<const std::byte> bytes);
  // All parts are there: they are on the disk from here on, and so is the name.
  void commit();

  bool direct() const { return direct_works_; }  // whether bytes pass by the page cache
  const Path& path() const { return path_; }

 private:
  void reserve(int64_t bytes);

  Path path_;
  Disk& disk_;
  FileHandle cached_, direct_;
  std::atomic<bool> direct_works_{false};
  bool committed_ = false;
};

}  // namespace phx
