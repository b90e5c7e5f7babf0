#include "phalanx/base/atomic_folder.h"

#include <cerrno>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

namespace {

// Also a link that leads nowhere.
bool is_there(const Path& path) {
  std::error_code code;
  const auto status = std::filesystem::symlink_status(path, code);
  if (code && status.type() != std::filesystem::file_type::not_found)
    throw_file_error("look at", path, code.value());
  return std::filesystem::exists(status);
}

std::vector<Path> content_of(const Path& folder) {
  std::vector<Path> content;
  std::error_code code;
  for (std::filesystem::directory_iterator at(folder, code), end; !code && at != end;
       at.increment(code))
    content.push_back(at->path());
  if (code) throw_file_error("read folder", folder, code.value());
  return content;
}

void rename(const Path& from, const Path& to, Disk& disk) {
  if (disk.rename(from.c_str(), to.c_str()) != 0) throw_file_error("rename", from, errno);
}

// Names that nobody else chooses: what has them is removed.
constexpr const char *kPartial = ".phalanx-partial", *kReplaced = ".phalanx-replaced";

// "out/" names the same folder as "out".
Path without_slash(const Path& path) { return path.has_filename() ? path : path.parent_path(); }

Path beside(const Path& path, const char* suffix) { return Path(path.native() + suffix); }

}  // namespace

void remove_tree(const Path& path, Disk& disk) {
  std::error_code code;
  if (std::filesystem::is_directory(std::filesystem::symlink_status(path, code)))
    for (const Path& inside : content_of(path)) remove_tree(inside, disk);
  if (disk.remove(path.c_str()) != 0 && errno != ENOENT) throw_file_error("remove", path, errno);
}

void recover_folder(const Path& path, Disk& disk) {
  const Path own = without_slash(path), replaced = beside(own, kReplaced);
  if (is_there(replaced) && !is_there(own)) rename(replaced, own, disk);
}

AtomicFolder::AtomicFolder(const Path& path, Disk& disk)
    : path_(without_slash(path)),
      temporary_(beside(path_, kPartial)),
      replaced_(beside(path_, kReplaced)),
      disk_(disk) {
  recover_folder(path_, disk_);
  remove_tree(replaced_, disk_);
  remove_tree(temporary_, disk_);
  if (path_.has_parent_path()) make_folder(path_.parent_path());
  if (disk_.make_folder(temporary_.c_str()) != 0)
    throw_file_error("make folder", temporary_, errno);
}

void AtomicFolder::commit() {
  sync_folder(temporary_, disk_);
  put_in_place();
  sync_folder(path_.has_parent_path() ? path_.parent_path() : ".", disk_);
  try {  // the new one is there: what stays of the old one is no failure
    remove_tree(temporary_, disk_);  // after an exchange: what was replaced
    remove_tree(replaced_, disk_);
  } catch (const Error& error) {
    log_warning(str_cat("what ", path_.string(), " replaced stays: ", error.what()));
  }
}

void AtomicFolder::put_in_place() {
  if (!is_there(path_))
    rename(temporary_, path_, disk_);
  else if (disk_.exchange(temporary_.c_str(), path_.c_str()) != 0)
    replace_in_two_steps();
}

void AtomicFolder::replace_in_two_steps() {
  rename(path_, replaced_, disk_);
  if (disk_.rename(temporary_.c_str(), path_.c_str()) == 0) return;
  const int error = errno;
  (void)disk_.rename(replaced_.c_str(), path_.c_str());  // else the next AtomicFolder does it
  throw_file_error("rename", temporary_, error);
}

}  // namespace phx
