// A disk for tests: counts the calls that write, and at a given one fails, or ends the process as
// kill -9 would. It can be slow, too.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "phalanx/base/disk.h"

namespace phx::testing {

class FaultyDisk : public Disk {
 public:
  static constexpr int64_t kNever = int64_t{1} << 60;

  int64_t fail_from = kNever;  // this call (from 1) and all later ones fail
  int64_t fail_until = kNever;
  int error = EIO;
  bool only_writes = false;  // and syncs: the others never fail
  int64_t kill_at = kNever;  // this call begins, and is the last thing that happens
  std::chrono::microseconds delay{0};

  int64_t calls() const { return calls_; }

  int open(const char* path, int flags, mode_t mode) override {
    return fails(Kind::name) ? -1 : Disk::open(path, flags, mode);
  }
  ssize_t write(int descriptor, const void* data, size_t bytes) override {
    if (calls_ + 1 == kill_at) {  // half of it may be there
      (void)Disk::write(descriptor, data, bytes / 2);
    }
    if (fails(Kind::content)) return -1;
    std::this_thread::sleep_for(delay);
    return Disk::write(descriptor, data, bytes);
  }
  ssize_t write_at(int descriptor, const void* data, size_t bytes, off_t offset) override {
    if (calls_ + 1 == kill_at) {
      (void)Disk::write_at(descriptor, data, bytes / 2, offset);
    }
    if (fails(Kind::content)) return -1;
    std::this_thread::sleep_for(delay);
    return Disk::write_at(descriptor, data, bytes, offset);
  }
  int reserve(int descriptor, off_t bytes) override {
    return fails(Kind::content) ? -1 : Disk::reserve(descriptor, bytes);
  }
  int sync(int descriptor) override { return fails(Kind::content) ? -1 : Disk::sync(descriptor); }
  int rename(const char* from, const char* to) override {
    return fails(Kind::name) ? -1 : Disk::rename(from, to);
  }
  int exchange(const char* a, const char* b) override {
    if (!can_exchange) {
      errno = EINVAL;
      return -1;
    }
    return fails(Kind::name) ? -1 : Disk::exchange(a, b);
  }
  int make_folder(const char* path) override {
    return fails(Kind::name) ? -1 : Disk::make_folder(path);
  }
  int remove(const char* path) override { return fails(Kind::name) ? -1 : Disk::remove(path); }

  bool can_exchange = true;

 private:
  enum class Kind { name, content };
  bool fails(Kind kind) {
    const int64_t call = ++calls_;
    if (call == kill_at) {
      ::kill(::getpid(), SIGKILL);
      ::pause();
    }
    if (call < fail_from || call > fail_until || (only_writes && kind == Kind::name)) return false;
    errno = error;
    return true;
  }

  std::atomic<int64_t> calls_{0};
};

}  // namespace phx::testing
