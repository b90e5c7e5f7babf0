#include "phalanx/core/host_region.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/base/math.h"

namespace phx {

namespace {

constexpr int64_t kLargePage = 2 << 20, kSmallPage = 4096;
constexpr int kMostThreads = 8;

// A write to every small page: where the system gives no large ones, each of them is missing.
void touch(std::byte* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kSmallPage)
    *static_cast<volatile std::byte*>(from + at) = std::byte{0};
}

void touch_in_threads(std::byte* data, int64_t bytes) {
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  const int64_t part = round_up(ceil_div(bytes, threads), kLargePage);
  std::vector<std::thread> others;
  try {
    for (int64_t at = part; at < bytes; at += part)
      others.emplace_back([=] { touch(data + at, std::min(part, bytes - at)); });
  } catch (const std::system_error&) {
    // Pages that nobody touches now come when they are first used.
  }
  touch(data, std::min(part, bytes));
  for (std::thread& other : others) other.join();
}

}  // namespace

std::shared_ptr<void> host_region(int64_t bytes) {
  // One large page more, so that the piece can begin at a multiple of it.
  const size_t mapped = size_t(round_up(bytes, kLargePage) + kLargePage);
  void* memory =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PHX_CHECK(memory != MAP_FAILED, "the system has no ", format_bytes(bytes),
            " of host memory in one piece");
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  auto* data = reinterpret_cast<std::byte*>(round_up(int64_t(begin), kLargePage));
  (void)::madvise(data, size_t(bytes), MADV_HUGEPAGE);
  touch_in_threads(data, bytes);
  return {data, [memory, mapped](void*) { ::munmap(memory, mapped); }};
}

}  // namespace phx
