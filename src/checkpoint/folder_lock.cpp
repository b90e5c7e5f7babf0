#include "phalanx/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <sstream>

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"

namespace phx {

namespace {

constexpr const char* kName = "run.lock";

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Field 22 of /proc/PID/stat, in ticks since the machine started; nothing if there is no such
// process. The name before it may hold anything, so fields are counted from its last bracket.
std::optional<int64_t> process_start_of(int64_t pid) {
  const std::string line = first_line(str_cat("/proc/", pid, "/stat").c_str());
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  return fields ? std::optional<int64_t>(std::strtoll(field.c_str(), nullptr, 10)) : std::nullopt;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[40];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

std::string read_all(const FileHandle& file) {
  char text[4096];
  const ssize_t n = ::pread(file.get(), text, sizeof text, 0);
  return n > 0 ? std::string(text, size_t(n)) : std::string();
}

timespec changed_at(const FileHandle& file) {
  struct stat info {};
  (void)::fstat(file.get(), &info);
  return info.st_mtim;
}

}  // namespace

LockHolder LockHolder::self() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  return {.host = host,
          .pid = ::getpid(),
          .started = utc_now(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .process_start = process_start_of(::getpid()).value_or(0)};
}

std::string LockHolder::to_text() const {
  return json_text(nlohmann::json{{"host", host},
                                  {"pid", pid},
                                  {"started", started},
                                  {"boot", boot},
                                  {"process_start", process_start}}) +
         "\n";
}

std::optional<LockHolder> LockHolder::parse(const std::string& text) {
  const nlohmann::json values = try_parse_json(text);
  if (!values.is_object()) return std::nullopt;
  try {
    return LockHolder{.host = values.at("host"),
                      .pid = values.at("pid"),
                      .started = values.at("started"),
                      .boot = values.at("boot"),
                      .process_start = values.at("process_start")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string LockHolder::description() const {
  return str_cat("process ", pid, " on ", host, ", since ", started);
}

bool LockHolder::same_machine(const LockHolder& other) const {
  return host == other.host && boot == other.boot;
}

FolderLock::FolderLock(const Path& folder, FolderLockOptions options)
    : path_(folder / kName), options_(std::move(options)) {
  make_folder(folder);
  while (!try_take()) {
  }
  // Whoever reads it meanwhile sees the old text or the new one: it is shorter than a block.
  const std::string text = options_.self.to_text();
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::pwrite(file_.get(), text.data(), text.size(), 0) != ssize_t(text.size()))
    throw_file_error("write", path_, errno);
  toucher_ = std::thread([this] { keep_touching(); });
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (toucher_.joinable()) toucher_.join();
  // The name goes while the lock is held: who opened the file before finds out that it is no longer
  // the one of that name. A file that somebody else has put there since is not ours to remove.
  if (is_named()) ::unlink(path_.c_str());
}

bool FolderLock::is_named() const {
  struct stat own {
  }, named{};
  return ::fstat(file_.get(), &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         own.st_ino == named.st_ino && own.st_dev == named.st_dev &&
         read_all(file_) == options_.self.to_text();
}

// False: the file went away in between, and another look is needed.
bool FolderLock::try_take() {
  file_ = FileHandle(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) throw_file_error("create", path_, errno);
  int locked = -1;
  errno = EOPNOTSUPP;
  if (options_.system_locks) do
      locked = ::flock(file_.get(), LOCK_EX | LOCK_NB);
    while (locked != 0 && errno == EINTR);
  const std::optional<LockHolder> holder = LockHolder::parse(read_all(file_));
  if (locked != 0 && (errno == EWOULDBLOCK || errno == EAGAIN)) refuse(holder);
  struct stat own {
  }, named{};
  if (::fstat(file_.get(), &own) != 0) throw_file_error("read", path_, errno);
  if (::stat(path_.c_str(), &named) != 0 || own.st_ino != named.st_ino) return false;
  if (holder && alive(*holder, locked == 0)) refuse(holder);
  taken_over_from_ = holder;
  return true;
}

void FolderLock::refuse(const std::optional<LockHolder>& holder) const {
  throw_error(str_cat(
      path_.parent_path().string(),
      " is in use: ", holder ? holder->description() : std::string("another run"),
      " saves its checkpoints there\n  hint: give another --save, or wait until that run has ended",
      "; a run that was killed does not hold it. If its machine is gone, remove ", path_.string()));
}

bool FolderLock::alive(const LockHolder& holder, bool has_system_lock) const {
  if (holder.same_machine(options_.self)) {
    // A lock on this machine's own files tells all there is to know.
    if (has_system_lock) return false;
    return process_start_of(holder.pid) == holder.process_start;
  }
  // A machine that started anew, or another one of the same name: the file's time tells.
  return touches_file();
}

// Whether somebody changes the file's time while we look. The time of a holder that died long ago
// says so at once, by the file system's own clock: that of a file made just now.
bool FolderLock::touches_file() const {
  const timespec before = changed_at(file_);
  const Path probe = str_cat(path_.string(), ".", ::getpid());
  const FileHandle made(::open(probe.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  const timespec now = made.is_open() ? changed_at(made) : timespec{};
  ::unlink(probe.c_str());
  const std::chrono::seconds age(now.tv_sec - before.tv_sec);
  if (made.is_open() && age > 10 * options_.touch) return false;
  std::this_thread::sleep_for(2 * options_.touch + options_.touch / 2);
  // Opened anew: a network file system asks its server then.
  const FileHandle again(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!again.is_open()) return false;
  const timespec after = changed_at(again);
  return after.tv_sec != before.tv_sec || after.tv_nsec != before.tv_nsec;
}

void FolderLock::keep_touching() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.touch, [this] { return stop_; }))
    (void)::futimens(file_.get(), nullptr);
}

}  // namespace phx
