#include "phalanx/kernels/paced_copy.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace phx::kernels::cpu {

void paced_copy(const Tensor& from, const Tensor& to, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  const auto* source = static_cast<const char*>(from.raw());
  auto* target = static_cast<char*>(to.raw());
  for (int64_t at = 0; at < to.bytes(); at += from.bytes())
    std::memmove(target + at, source, size_t(std::min(from.bytes(), to.bytes() - at)));
  std::this_thread::sleep_until(until);
}

}  // namespace phx::kernels::cpu
