#include "phalanx/comm/machine_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "phalanx/base/error.h"

namespace phx {

namespace {

constexpr const char* kWayOut = "set PHX_JOB_KEY to a secret that all ranks know";

}  // namespace

Path private_folder(const std::string& name, const std::string& hint) {
  const Path memory = "/dev/shm";
  const Path folder =
      (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
      name;
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    throw_file_error("make folder", folder, errno);
  const FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat found {};
  const bool known = handle.is_open() && ::fstat(handle.get(), &found) == 0;
  const int error = errno;
  if (!known && error != ELOOP && error != ENOTDIR && error != EACCES)
    throw_file_error("open folder", folder, error);
  PHX_CHECK(known && found.st_uid == ::geteuid(), folder.string(),
            " is not a folder of this user (", ::geteuid(),
            "): another user may have put it there\n  hint: ", hint);
  if ((found.st_mode & 0777) != 0700 && ::fchmod(handle.get(), 0700) != 0)
    throw_file_error("close to other users", folder, errno);
  return folder;
}

Path machine_key_file(int port) {
  return private_folder(str_cat("phalanx-", ::geteuid()), kWayOut) / str_cat("key-", port);
}

MachineKeyFile::MachineKeyFile(const Path& file, const std::string& secret) : file_(file) {
  const Path fresh = str_cat(file.string(), ".", ::getpid());
  (void)::unlink(fresh.c_str());  // of a process with the same number that was killed here
  FileHandle handle(
      ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!handle.is_open()) throw_file_error("make", fresh, errno);
  const bool written =
      ::write(handle.get(), secret.data(), secret.size()) == ssize_t(secret.size());
  if (!written || ::rename(fresh.c_str(), file.c_str()) != 0) {
    const int error = errno;
    (void)::unlink(fresh.c_str());
    throw_file_error("write", file, error);
  }
}

MachineKeyFile::~MachineKeyFile() { (void)::unlink(file_.c_str()); }

std::optional<std::string> read_machine_key(const Path& file) {
  const FileHandle handle(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!handle.is_open() && errno == ENOENT) return std::nullopt;
  if (!handle.is_open() && errno != ELOOP) throw_file_error("read", file, errno);
  struct stat found {};
  const bool own = handle.is_open() && ::fstat(handle.get(), &found) == 0 &&
                   S_ISREG(found.st_mode) && found.st_uid == ::geteuid() &&
                   (found.st_mode & 077) == 0;
  PHX_CHECK(own, file.string(), " is not a file of this user (", ::geteuid(),
            ") that nobody else can read or write\n  hint: remove it, or ", kWayOut);
  char text[256];
  const ssize_t got = ::read(handle.get(), text, sizeof text);
  if (got < 0) throw_file_error("read", file, errno);
  return std::string(text, size_t(got));
}

}  // namespace phx
