// A large array of plain numbers, on huge pages where the system has them: shuffling a large array
// would miss the cache of addresses on nearly every access otherwise. Not initialised by us: pages
// come as zeros.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>

#include "phalanx/base/error.h"

namespace phx {

template <class T>
class BigArray {
 public:
  BigArray() = default;
  explicit BigArray(int64_t count) : count_(size_t(count)) {
    if (count == 0) return;
    const size_t bytes = count_ * sizeof(T);
    void* address =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    PHX_CHECK(address != MAP_FAILED, "there is no memory for an index of ", bytes, " bytes");
    ::madvise(address, bytes, MADV_HUGEPAGE);  // a wish
    memory_ = std::shared_ptr<void>(address, [bytes](void* p) { ::munmap(p, bytes); });
  }

  std::span<T> span() const { return {static_cast<T*>(memory_.get()), count_}; }
  const std::shared_ptr<void>& memory() const { return memory_; }

 private:
  std::shared_ptr<void> memory_;
  size_t count_ = 0;
};

}  // namespace phx
