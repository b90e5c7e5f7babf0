// How many ranks a machine has room for: memory, processes or threads, and open files. Told before
// any rank starts, with the number that would fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace phx {

struct MachineLimits {
  int64_t memory = 0;     // bytes that are free now, for this process and its children
  int64_t processes = 0;  // and threads that may still be started
  int64_t files = 0;      // that one process may open
  int cores = 1;
};
// Of this machine: also what its control group, if it is in one, leaves.
MachineLimits machine_limits();

struct ShortOf {
  std::string what;     // "4096 processes take at least 120 GiB, but 16 GiB of memory are free"
  std::string way_out;  // "at most 546 fit"
};

// `count` processes here, of `world` in all, each of which is connected to every other.
std::optional<ShortOf> lacks_room_for_processes(int64_t count, int64_t world,
                                                const MachineLimits& limits);
// `count` ranks as threads, which hold `bytes` of weights and state together.
std::optional<ShortOf> lacks_room_for_threads(int64_t count, int64_t bytes,
                                              const MachineLimits& limits);

// Raises this process's limit of open files, and so its children's, if a rank of this world needs
// it.
void make_room_for_files(int64_t world);

}  // namespace phx
