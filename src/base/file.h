// Files: read whole, mapped, appended to, or replaced in one go. Every error names the file, what
// the system said and what one can do about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "phalanx/base/disk.h"

namespace phx {

using Path = std::filesystem::path;

// Throws: "cannot <action> <path>: <errno text>" and a hint that fits the error number.
[[noreturn]] void throw_file_error(std::string_view action, const Path& path, int error_number);

std::string read_file(const Path& path);

// The file is either the old one or the whole new one, even if the machine stops halfway.
void write_file(const Path& path, std::string_view content, Disk& disk = Disk::real());

// Makes the folder and those above it; no error when it is already there.
void make_folder(const Path& path);

// Names in this folder are on disk from here on.
void sync_folder(const Path& folder, Disk& disk = Disk::real());

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// An open file descriptor, closed at the end of its life.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int descriptor) : descriptor_(descriptor) {}
  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  int close();  // the error number, 0 when all is well

 private:
  int descriptor_ = -1;
};

// Written to a temporary file beside `path`; `commit` puts it in place (fsync, rename, fsync of the
// folder). Without a commit the temporary file goes away and `path` stays what it was.
class AtomicFile {
 public:
  explicit AtomicFile(const Path& path, Disk& disk = Disk::real());
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  void commit();
  void publish();  // whole or not there for readers, but not safe from a loss of power

  int64_t size() const { return size_; }  // bytes written so far
  const Path& path() const { return path_; }

 private:
  Path path_, temporary_;
  Disk& disk_;
  FileHandle file_;
  int64_t size_ = 0;
};

// Bytes go to the end of the file, and have left the process when `write` returns. Where only some
// of them could be written, the file is cut back to what it was.
class AppendFile {
 public:
  explicit AppendFile(const Path& path);

  void write(std::string_view text);
  const Path& path() const { return path_; }
  bool in_place() const;  // whether the path still names this file: somebody may have removed it

 private:
  Path path_;
  FileHandle file_;
};

// A whole file, mapped read-only. What happens when it becomes shorter while it is mapped:
// base/mapped_faults.h. Our own files are replaced by rename and never cut.
class MappedFile {
 public:
  explicit MappedFile(const Path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::byte* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(size_); }
  const Path& path() const { return path_; }

 private:
  Path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace phx
