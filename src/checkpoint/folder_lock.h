// One run at a time saves into a folder: who does holds DIR/run.lock. It says who that is, and is
// gone when the run ends. A run that was killed leaves it behind; the next one sees that its holder
// is dead, and takes it over.
//
// Alive is who holds the system's lock on the file (flock, which most network file systems pass on
// to their server; it ends with the process, however that ends). Where a file system has no such
// locks, or does not tell other machines of them, a holder on this machine is looked up by its
// process number and start, and one elsewhere is alive if it touches the file, which it does every
// few seconds.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "phalanx/base/file.h"

namespace phx {

// As run.lock has it.
struct LockHolder {
  std::string host;
  int64_t pid = 0;
  std::string started;    // "2026-05-04 12:00:00 UTC": when the lock was taken
  std::string boot;       // of the machine, so that a process of before a restart is none
  int64_t process_start;  // in ticks since then: a number that is used again is another process

  static LockHolder self();
  static std::optional<LockHolder> parse(const std::string& text);
  std::string to_text() const;
  std::string description() const;  // "process 4711 on node7, since 2026-05-04 12:00:00 UTC"
  bool same_machine(const LockHolder& other) const;
};

struct FolderLockOptions {
  std::chrono::milliseconds touch = std::chrono::seconds(5);
  bool system_locks = true;  // false: as on a file system that has none
  LockHolder self = LockHolder::self();
};

class FolderLock {
 public:
  // Makes the folder if need be. Throws if another run holds it, and names that run.
  explicit FolderLock(const Path& folder, FolderLockOptions options = {});
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  const std::optional<LockHolder>& taken_over_from() const { return taken_over_from_; }

 private:
  bool try_take();
  bool is_named() const;  // whether the file of that name is still ours
  void refuse(const std::optional<LockHolder>& holder) const;
  bool alive(const LockHolder& holder, bool has_system_lock) const;
  bool touches_file() const;
  void keep_touching();

  Path path_;
  FolderLockOptions options_;
  FileHandle file_;
  std::optional<LockHolder> taken_over_from_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread toucher_;
};

}  // namespace phx
