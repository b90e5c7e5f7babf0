// The system calls by which files come into being. Whatever writes a file that must not be torn
// takes a Disk, so that a test can put one in between that fails, is slow, or dies at a given call.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace phx {

class Disk {
 public:
  virtual ~Disk() = default;

  // Each as its system call: -1 and errno on failure.
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int descriptor, const void* data, size_t bytes);
  virtual ssize_t write_at(int descriptor, const void* data, size_t bytes, off_t offset);
  // The file has `bytes` bytes, and room for them on the disk: no write below fails for want of it.
  // EOPNOTSUPP where a file system cannot tell.
  virtual int reserve(int descriptor, off_t bytes);
  virtual int sync(int descriptor);
  // The system may begin to write these bytes out; no promise, and no error.
  virtual void start_writing_out(int descriptor, off_t offset, off_t bytes);
  virtual int rename(const char* from, const char* to);
  // The two change places in one go; EINVAL or ENOSYS where a file system cannot.
  virtual int exchange(const char* a, const char* b);
  virtual int make_folder(const char* path);
  virtual int remove(const char* path);  // a file, or an empty folder

  static Disk& real();
};

}  // namespace phx
