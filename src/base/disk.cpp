#include "phalanx/base/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace phx {

int Disk::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }

ssize_t Disk::write(int descriptor, const void* data, size_t bytes) {
  return ::write(descriptor, data, bytes);
}

ssize_t Disk::write_at(int descriptor, const void* data, size_t bytes, off_t offset) {
  return ::pwrite(descriptor, data, bytes, offset);
}

int Disk::reserve(int descriptor, off_t bytes) { return ::fallocate(descriptor, 0, 0, bytes); }

int Disk::sync(int descriptor) { return ::fsync(descriptor); }

void Disk::start_writing_out(int descriptor, off_t offset, off_t bytes) {
  (void)::sync_file_range(descriptor, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

int Disk::rename(const char* from, const char* to) { return ::rename(from, to); }

int Disk::exchange(const char* a, const char* b) {
  return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

int Disk::make_folder(const char* path) { return ::mkdir(path, 0777); }

int Disk::remove(const char* path) { return ::remove(path); }

Disk& Disk::real() {
  static Disk disk;  // holds nothing
  return disk;
}

}  // namespace phx
