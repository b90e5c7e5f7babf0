#include "phalanx/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <set>

#include "phalanx/base/atomic_folder.h"
#include "phalanx/base/error.h"
#include "phalanx/base/log.h"

namespace phx {

namespace {

constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
constexpr std::string_view kPrefix = "iter_", kTemporary = ".tmp", kReplaced = ".old";

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

std::vector<std::string> names_in(const Path& folder) {
  std::vector<std::string> names;
  std::error_code code;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code))
    names.push_back(entry.path().filename().string());
  if (code && code != std::errc::no_such_file_or_directory)
    throw_file_error("read folder", folder, code.value());
  std::ranges::sort(names);
  return names;
}

Path with_suffix(const Path& path, std::string_view suffix) {
  return Path(path.string() + std::string(suffix));
}

// What is not needed any more. Somebody may hold it open (NFS keeps such files), and a run that
// saved its checkpoint does not end for that.
void try_remove_tree(const Path& path, Disk& disk) {
  try {
    remove_tree(path, disk);
  } catch (const std::exception& error) {
    log_warning(str_cat("an old checkpoint stays: ", error.what()));
  }
}

// Under the name of what is not complete first: half of a replaced one must not be taken for it.
void remove_replaced(const Path& replaced, const Path& path, Disk& disk) {
  const Path leaving = with_suffix(path, kTemporary);
  const bool renamed = disk.rename(replaced.c_str(), leaving.c_str()) == 0;
  try_remove_tree(renamed ? leaving : replaced, disk);
}

void rename(const Path& from, const Path& to, Disk& disk) {
  if (disk.rename(from.c_str(), to.c_str()) != 0) throw_file_error("rename", from, errno);
}

}  // namespace

std::string iteration_name(int64_t iteration) {
  const std::string digits = std::to_string(iteration);
  return std::string(kPrefix) + std::string(digits.size() < 7 ? 7 - digits.size() : 0, '0') +
         digits;
}

Path checkpoint_path(const Path& folder, int64_t iteration) {
  return folder / iteration_name(iteration);
}

Path temporary_path(const Path& folder, int64_t iteration) {
  return with_suffix(checkpoint_path(folder, iteration), kTemporary);
}

Path manifest_path(const Path& checkpoint) { return checkpoint / "manifest.json"; }

std::optional<int64_t> latest_checkpoint(const Path& folder) {
  const Path tracker = folder / kTracker;
  if (!std::filesystem::exists(tracker)) return std::nullopt;
  const std::string text = read_file(tracker);
  const size_t end = text.find_last_not_of(" \n\r\t") + 1;
  if (const auto iteration = parse_number(std::string_view(text).substr(0, end))) return iteration;
  throw_error(str_cat(tracker.string(), " should hold an iteration's number, but holds '",
                      text.substr(0, 40),
                      "'\n  hint: write the number of a checkpoint into it, or ",
                      "use --ckpt-step or --load-newest-valid"));
}

Path find_checkpoint(const Path& folder, int64_t iteration) {
  const Path path = checkpoint_path(folder, iteration), replaced = with_suffix(path, kReplaced);
  return !std::filesystem::exists(path) && std::filesystem::exists(replaced) ? replaced : path;
}

std::vector<int64_t> checkpoints_in(const Path& folder) {
  std::set<int64_t, std::greater<>> iterations;
  for (const std::string& full : names_in(folder)) {
    std::string_view name = full;
    if (name.ends_with(kReplaced)) name.remove_suffix(kReplaced.size());
    if (!name.starts_with(kPrefix)) continue;
    const auto iteration = parse_number(name.substr(kPrefix.size()));
    if (iteration && name == iteration_name(*iteration)) iterations.insert(*iteration);
  }
  return {iterations.begin(), iterations.end()};
}

void prepare_checkpoint(const Path& folder, int64_t iteration, Disk& disk) {
  make_folder(folder);
  const Path temporary = temporary_path(folder, iteration);
  for (const std::string& name : names_in(folder)) {
    // Of a run that was killed while it wrote the tracker.
    if (name.starts_with(str_cat(kTracker, ".tmp"))) try_remove_tree(folder / name, disk);
    if (!name.starts_with(kPrefix)) continue;
    if (folder / name == temporary)
      remove_tree(temporary, disk);
    else if (name.ends_with(kTemporary))
      try_remove_tree(folder / name, disk);
    if (!name.ends_with(kReplaced)) continue;
    // The machine stopped between the two renames below: the replaced one is still the good one.
    const Path replaced = folder / name,
               path = folder / name.substr(0, name.size() - kReplaced.size());
    if (std::filesystem::exists(path)) {
      remove_replaced(replaced, path, disk);
    } else {
      rename(replaced, path, disk);
    }
  }
  if (disk.make_folder(temporary.c_str()) != 0) throw_file_error("make folder", temporary, errno);
}

void commit_checkpoint(const Path& folder, int64_t iteration, Disk& disk) {
  const Path path = checkpoint_path(folder, iteration),
             temporary = temporary_path(folder, iteration);
  sync_folder(temporary, disk);
  if (!std::filesystem::exists(path)) {
    rename(temporary, path, disk);
  } else if (disk.exchange(temporary.c_str(), path.c_str()) != 0) {
    // A file system that cannot exchange two names (NFS): the one replaced has a name in between
    // under which prepare_checkpoint and find_checkpoint find it again.
    rename(path, with_suffix(path, kReplaced), disk);
    rename(temporary, path, disk);
  }
  sync_folder(folder, disk);
  write_file(folder / kTracker, std::to_string(iteration), disk);
  if (std::filesystem::exists(temporary)) try_remove_tree(temporary, disk);
  if (const Path replaced = with_suffix(path, kReplaced); std::filesystem::exists(replaced))
    remove_replaced(replaced, path, disk);
}

void remove_checkpoint(const Path& folder, int64_t iteration, Disk& disk) {
  const Path path = checkpoint_path(folder, iteration);
  if (!std::filesystem::exists(path)) return;
  const Path leaving = temporary_path(folder, iteration);
  if (disk.rename(path.c_str(), leaving.c_str()) == 0)
    try_remove_tree(leaving, disk);
  else
    log_warning(str_cat("an old checkpoint stays: ", path.string(), ": ", std::strerror(errno)));
}

}  // namespace phx
