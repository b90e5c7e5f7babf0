#include "phalanx/base/mapped_faults.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>

#include "phalanx/base/error.h"

namespace phx {

namespace {

// A node of a list that only grows: a handler may walk it at any moment. Nodes are used again.
struct Mapping {
  std::atomic<const std::byte*> begin{nullptr};  // null: free
  std::atomic<size_t> size{0};
  std::atomic<bool> faulted{false};
  std::string path;  // read by the handler of a thread that reads the mapping, so it stays
  dev_t device = 0;
  ino_t file = 0;
  Mapping* next = nullptr;
};

std::atomic<Mapping*> first_mapping{nullptr};
std::atomic<OnMappedFault> on_fault{OnMappedFault::end_program};
struct sigaction handler_before;

std::mutex& mutex() {
  static std::mutex mutex;
  return mutex;
}

// Sizes that a check asks for: with more files they take turns, since each costs microseconds.
constexpr int kSizesACheck = 64;
uint64_t checks = 0;  // guarded by the mutex

std::string& lost_before() {  // of a mapping that is gone; guarded by the mutex
  static std::string text;
  return text;
}

void say(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

void on_bus_error(int signal, siginfo_t* info, void*) {
  const int error_before = errno;
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  Mapping* hit = nullptr;
  for (Mapping* node = first_mapping; node != nullptr; node = node->next)
    if (const std::byte* begin = node->begin; begin != nullptr && at >= begin)
      if (at < begin + node->size) hit = node;
  if (hit == nullptr || info->si_code != BUS_ADRERR) {  // none of ours: as if we were not here
    ::sigaction(signal, &handler_before, nullptr);
    return;
  }
  if (on_fault == OnMappedFault::note) {
    const auto page_bytes = uintptr_t(::sysconf(_SC_PAGESIZE));
    const uintptr_t page = reinterpret_cast<uintptr_t>(at) / page_bytes * page_bytes;
    const uintptr_t end = reinterpret_cast<uintptr_t>(hit->begin.load()) + hit->size;
    void* zeros = ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros != MAP_FAILED) {
      hit->faulted = true;
      errno = error_before;
      return;
    }
  }
  say("error: ");
  say(hit->path.c_str());
  say(" cannot be read any more: it became shorter while it was read, or its disk fails\n");
  ::_exit(1);
}

std::string lost_text(const std::string& path, size_t size, const std::string& why) {
  return str_cat(path, " cannot be read any more: it had ", size, " bytes when it was opened, ",
                 why,
                 "\n  hint: files that a run reads must not change; write new data beside them, "
                 "and rename it");
}

// What is wrong with the size of a mapped file; empty if nothing is.
std::string wrong_size(const Mapping& mapping) {
  struct stat info {};
  // A file that was replaced or removed is still there for who has it open.
  const bool same = ::stat(mapping.path.c_str(), &info) == 0 && info.st_dev == mapping.device &&
                    info.st_ino == mapping.file;
  if (same && uint64_t(info.st_size) < mapping.size)
    return lost_text(mapping.path, mapping.size, str_cat("and has ", info.st_size, " now"));
  return "";
}

std::string lost_pages(const Mapping& mapping) {
  if (!mapping.faulted) return "";
  const std::string text = wrong_size(mapping);
  return !text.empty() ? text
                       : lost_text(mapping.path, mapping.size, "and the system lost some of them");
}

// The first trouble of the mappings in use.
std::string find_trouble() {
  int in_use = 0;
  for (const Mapping* node = first_mapping; node != nullptr; node = node->next) {
    if (node->begin == nullptr) continue;
    ++in_use;
    if (std::string text = lost_pages(*node); !text.empty()) return text;
  }
  const int turns = (in_use + kSizesACheck - 1) / kSizesACheck;
  int number = 0;
  for (const Mapping* node = first_mapping; node != nullptr; node = node->next) {
    if (node->begin == nullptr) continue;
    if (number++ % turns != int(checks % uint64_t(turns))) continue;
    if (std::string text = wrong_size(*node); !text.empty()) return text;
  }
  ++checks;
  return "";
}

}  // namespace

void handle_mapped_faults(OnMappedFault what) {
  const std::lock_guard lock(mutex());
  on_fault = what;
  struct sigaction now = {};
  ::sigaction(SIGBUS, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_bus_error) return;
  handler_before = now;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void check_mapped_files() {
  std::string trouble;
  {
    const std::lock_guard lock(mutex());
    trouble = std::exchange(lost_before(), {});
    if (trouble.empty()) trouble = find_trouble();
  }
  if (!trouble.empty()) throw_error(trouble);
}

void add_mapping(const std::byte* begin, size_t size, const std::string& path,
                 const struct stat& info) {
  const std::lock_guard lock(mutex());
  Mapping* node = first_mapping;
  while (node != nullptr && node->begin != nullptr) node = node->next;
  const bool made = node == nullptr;
  if (made) node = new Mapping;  // kept for ever: see above
  node->path = path;
  node->device = info.st_dev;
  node->file = info.st_ino;
  node->faulted = false;
  node->size = size;
  node->begin = begin;
  if (!made) return;
  node->next = first_mapping;
  first_mapping = node;
}

void remove_mapping(const std::byte* begin) {
  const std::lock_guard lock(mutex());
  for (Mapping* node = first_mapping; node != nullptr; node = node->next) {
    if (node->begin != begin) continue;
    if (node->faulted && lost_before().empty())
      lost_before() = lost_text(node->path, node->size, "and the system lost some of them");
    node->begin = nullptr;
    return;
  }
}

}  // namespace phx
