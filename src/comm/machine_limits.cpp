#include "phalanx/comm/machine_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <thread>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"

namespace phx {

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// What a rank takes at least, before it has any weights. Seen with the smallest model: a process
// has 105 to 120 MiB of its own, most of them a mathematics library's; a thread 0.55 to 1 MiB.
constexpr int64_t kBytesOfProcess = 64 << 20;
constexpr int64_t kBytesOfThread = 512 << 10;
// Beyond this ranks only take turns: 2048 a core were seen to take 17 s for an empty iteration.
constexpr int64_t kThreadsOfCore = 512;
constexpr int64_t kThreadsOfProcess = 3;  // its own, and the two that move bytes
constexpr int64_t kStrangers = 256;       // connections that have not shown the job's key
constexpr int64_t kOtherFiles = 32;

// The number in a file of /proc or /sys; none for "max", or if there is no such file.
std::optional<int64_t> number_in(const std::string& path) {
  int64_t number = 0;
  return std::ifstream(path) >> number ? std::optional(number) : std::nullopt;
}

int64_t free_memory() {
  int64_t free = kNoLimit;
  std::ifstream lines("/proc/meminfo");
  for (std::string name; lines >> name;) {
    int64_t kib = 0;
    if (name == "MemAvailable:" && lines >> kib) free = kib << 10;
    lines.ignore(kNoLimit, '\n');
  }
  // Of a container, in which /sys/fs/cgroup is its own group: version 2, then 1.
  for (const auto& [most, now] :
       {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                  "/sys/fs/cgroup/memory/memory.usage_in_bytes")})
    if (const auto limit = number_in(most))
      free = std::min(free, std::max<int64_t>(0, *limit - number_in(now).value_or(0)));
  return free;
}

// Under Slurm and systemd a process sees the whole tree of groups; its own, and every one above it,
// limits it.
int64_t free_in_own_groups() {
  int64_t free = kNoLimit;
  std::ifstream lines("/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::/")) continue;  // version 2
    for (std::string path = line.substr(3); path.size() > 1; path.resize(path.rfind('/'))) {
      const std::string group = "/sys/fs/cgroup" + path;
      if (const auto limit = number_in(group + "/memory.max"))
        free = std::min(
            free, std::max<int64_t>(0, *limit - number_in(group + "/memory.current").value_or(0)));
    }
  }
  return free;
}

int64_t free_processes() {
  int64_t free = number_in("/proc/sys/kernel/threads-max").value_or(kNoLimit);
  free = std::min(free, number_in("/proc/sys/kernel/pid_max").value_or(kNoLimit));
  if (const auto most = number_in("/sys/fs/cgroup/pids.max"))
    free = std::min(free, *most - number_in("/sys/fs/cgroup/pids.current").value_or(0));
  rlimit limit{};
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    free = std::min(free, int64_t(limit.rlim_cur));
  return free;
}

int64_t most_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return kNoLimit;
  return int64_t(limit.rlim_max);
}

std::string bytes_text(double bytes) { return format_bytes(int64_t(std::min(bytes, 9e18))); }

// Of rank 0 as it starts: each rank is connected to its store and to itself, and strangers may be
// there as well. A launcher has two pipes for each of its ranks, which are not more.
int64_t files_needed(int64_t world) { return 2 * world + kStrangers + kOtherFiles; }

}  // namespace

MachineLimits machine_limits() {
  return {.memory = std::min(free_memory(), free_in_own_groups()),
          .processes = free_processes(),
          .files = most_files(),
          .cores = int(std::max(1u, std::thread::hardware_concurrency()))};
}

std::optional<ShortOf> lacks_room_for_processes(int64_t count, int64_t world,
                                                const MachineLimits& limits) {
  const std::string cores =
      str_cat("this machine has ", limits.cores, limits.cores == 1 ? " core" : " cores");
  const auto at_most = [&](int64_t fit) {
    return str_cat("at most ", std::max<int64_t>(fit, 0), " fit, and ", cores,
                   "; --nnodes spreads ranks over machines");
  };
  if (count > limits.memory / kBytesOfProcess)
    return ShortOf{str_cat("that many processes take at least ",
                           bytes_text(double(count) * double(kBytesOfProcess)), " (",
                           format_bytes(kBytesOfProcess), " each, without a model), but ",
                           format_bytes(limits.memory), " of memory are free"),
                   at_most(limits.memory / kBytesOfProcess)};
  if (count > limits.processes / kThreadsOfProcess)
    return ShortOf{
        str_cat("that many processes have at least ", kThreadsOfProcess, " threads each, but ",
                limits.processes, " processes and threads are allowed here"),
        at_most(limits.processes / kThreadsOfProcess)};
  if (files_needed(world) > limits.files)
    return ShortOf{str_cat("a process needs ", files_needed(world), " open files for a world of ",
                           world, ", but ", limits.files, " are allowed here"),
                   "ulimit -Hn shows the limit; an administrator can raise it"};
  return std::nullopt;
}

std::optional<ShortOf> lacks_room_for_threads(int64_t count, int64_t bytes,
                                              const MachineLimits& limits) {
  const auto way_out = [&](int64_t fit) {
    return str_cat("at most ", std::max<int64_t>(fit, 0), " fit here, on ", limits.cores,
                   limits.cores == 1 ? " core" : " cores",
                   "; `phalanx plan` says what a layout needs without running it, and `phalanx "
                   "verify` runs it shrunk");
  };
  const double total = double(count) * double(kBytesOfThread) + double(bytes);
  if (total > double(limits.memory))
    return ShortOf{str_cat("that many ranks take at least ", bytes_text(total), ", of which ",
                           format_bytes(bytes), " are weights, gradients and optimizer state, but ",
                           format_bytes(limits.memory), " of memory are free"),
                   way_out(int64_t(double(limits.memory) / total * double(count)))};
  if (count > kThreadsOfCore * limits.cores)
    return ShortOf{str_cat("that many ranks as threads would only take turns: ", kThreadsOfCore,
                           " for each core are the most"),
                   way_out(kThreadsOfCore * limits.cores)};
  if (count > limits.processes)
    return ShortOf{str_cat("that many ranks need a thread each at least, but ", limits.processes,
                           " processes and threads are allowed here"),
                   way_out(limits.processes)};
  return std::nullopt;
}

void make_room_for_files(int64_t world) {
  rlimit limit{};
  const rlim_t needed = rlim_t(files_needed(world));
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(limit.rlim_max, needed);
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace phx
