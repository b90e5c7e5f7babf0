#include "phalanx/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "phalanx/base/error.h"
#include "phalanx/base/mapped_faults.h"

namespace phx {
namespace {

const char* hint(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "the disk is full: free some space, or choose a folder on another disk";
    case EDQUOT:
      return "the quota is used up: remove files of yours, or choose another folder";
    case EFBIG:
      return "files may not be that large here: raise the limit (ulimit -f)";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of the folders above it";
    case EROFS:
      return "the file system is read-only: choose another folder";
    case ENOENT:
    case ENOTDIR:
      return "check the spelling, and that the folder exists";
    case EISDIR:
      return "this is a folder; give the name of a file";
    case EMFILE:
    case ENFILE:
      return "too many files are open: raise the limit (ulimit -n)";
    case EIO:
    case ESTALE:
      return "the disk or network file system fails: see the system's log";
    case ENAMETOOLONG:
      return "choose a shorter name";
    default:
      return nullptr;
  }
}

// Big writes are cut, since Linux moves at most 2 GiB in one call.
constexpr size_t kMaxWrite = size_t{1} << 30;
constexpr size_t kLargeWrite = size_t{1} << 20;

void write_all(Disk& disk, const FileHandle& file, std::span<const std::byte> bytes,
               const Path& path) {
  while (!bytes.empty()) {
    const ssize_t n = disk.write(file.get(), bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("write", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

FileHandle open_to_read(const Path& path, struct stat& info) {
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) throw_file_error("read", path, errno);
  if (::fstat(file.get(), &info) != 0) throw_file_error("read", path, errno);
  if (S_ISDIR(info.st_mode)) throw_file_error("read", path, EISDIR);
  return file;
}

}  // namespace

void throw_file_error(std::string_view action, const Path& path, int error_number) {
  const char* way_out = hint(error_number);
  throw_error(str_cat("cannot ", action, " ", path.native(), ": ",
                      std::generic_category().message(error_number), way_out ? "\n  hint: " : "",
                      way_out ? way_out : ""));
}

std::string read_file(const Path& path) {
  struct stat info {};
  const FileHandle file = open_to_read(path, info);
  std::string content;
  content.reserve(static_cast<size_t>(info.st_size));
  char chunk[1 << 16];
  while (true) {  // to the end of the file, since pipes and /proc report a size of 0
    const ssize_t n = ::read(file.get(), chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_file_error("read", path, errno);
    if (n == 0) return content;
    content.append(chunk, static_cast<size_t>(n));
  }
}

void write_file(const Path& path, std::string_view content, Disk& disk) {
  AtomicFile file(path, disk);
  file.write(content);
  file.commit();
}

void make_folder(const Path& path) {
  std::error_code code;
  std::filesystem::create_directories(path, code);
  if (code) throw_file_error("make folder", path, code.value());
}

// A rename is on disk only once its folder is. Some network file systems refuse to sync a folder
// (EINVAL); there is nothing more one could do about it there.
void sync_folder(const Path& folder, Disk& disk) {
  FileHandle handle(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handle.is_open()) throw_file_error("open folder", folder, errno);
  if (disk.sync(handle.get()) != 0 && errno != EINVAL)
    throw_file_error("sync folder", folder, errno);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileHandle::~FileHandle() { close(); }

int FileHandle::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor >= 0 && ::close(descriptor) != 0 ? errno : 0;
}

AtomicFile::AtomicFile(const Path& path, Disk& disk) : path_(path), disk_(disk) {
  if (std::error_code code; std::filesystem::is_directory(path, code)) {
    throw_file_error("write", path, EISDIR);
  }
  // The process id keeps ranks on one node apart, the number threads of one process.
  for (int number = 0; !file_.is_open(); ++number) {
    temporary_ = path;
    temporary_ += str_cat(".tmp.", ::getpid(), ".", number);
    file_ =
        FileHandle(disk_.open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_.is_open() && errno != EEXIST) throw_file_error("create", path, errno);
  }
}

AtomicFile::~AtomicFile() {
  if (file_.is_open()) disk_.remove(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  PHX_ASSERT(file_.is_open(), "written after commit: ", path_.native());
  write_all(disk_, file_, bytes, path_);
  // Large files go out while they are written, so that the sync at the end has little left to do.
  if (bytes.size() >= kLargeWrite)
    disk_.start_writing_out(file_.get(), static_cast<off_t>(size_),
                            static_cast<off_t>(bytes.size()));
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::commit() {
  PHX_ASSERT(file_.is_open(), "committed twice: ", path_.native());
  if (disk_.sync(file_.get()) != 0) throw_file_error("write", path_, errno);
  publish();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : Path("."), disk_);
}

void AtomicFile::publish() {
  PHX_ASSERT(file_.is_open(), "committed twice: ", path_.native());
  if (disk_.rename(temporary_.c_str(), path_.c_str()) != 0)
    throw_file_error("replace", path_, errno);
  if (const int error_number = file_.close()) throw_file_error("write", path_, error_number);
}

AppendFile::AppendFile(const Path& path)
    : path_(path), file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!file_.is_open()) throw_file_error("append to", path, errno);
}

void AppendFile::write(std::string_view text) {
  struct stat before {};
  const bool regular = ::fstat(file_.get(), &before) == 0 && S_ISREG(before.st_mode);
  try {
    write_all(Disk::real(), file_, as_bytes(text), path_);
  } catch (...) {
    if (regular) (void)!::ftruncate(file_.get(), before.st_size);
    throw;
  }
}

bool AppendFile::in_place() const {
  struct stat own {
  }, named{};
  return ::fstat(file_.get(), &own) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         own.st_dev == named.st_dev && own.st_ino == named.st_ino;
}

MappedFile::MappedFile(const Path& path) : path_(path) {
  struct stat info {};
  const FileHandle file = open_to_read(path, info);
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;  // mmap refuses an empty mapping
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw_file_error("map", path, errno);
  data_ = static_cast<const std::byte*>(address);
  add_mapping(data_, size_, path_.native(), info);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  remove_mapping(data_);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace phx
