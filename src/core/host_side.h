// The host beside a rank's device, where a step keeps what does not fit: optimizer state that the
// CPU updates, activations that wait for their backward. A cpu device has such a host too (other
// memory of the same machine), and a meta device one that counts, so that all of it is tested and
// planned without a GPU.
//
// Made on first use: runtime.extension<HostSide>().
#pragma once

#include "phalanx/core/tensor.h"

namespace phx {

struct HostMemory {
  MemoryReport plain, pinned;
  int64_t reserved() const { return plain.reserved + pinned.reserved; }
};

class HostSide {
 public:
  explicit HostSide(Runtime& device);

  // Ordinary memory, for what never travels.
  Device plain() { return plain_.device(); }
  // Memory that the device copies from and to while both go on with other work (pinned on cuda).
  // CPU kernels on it have the rank's threads.
  Device pinned() { return pinned_.device(); }

  HostMemory memory() { return {plain_.allocator().report(), pinned_.allocator().report()}; }

  // Enqueued on the device's stream `on`, behind what is there. Equal sizes; the host's tensor is
  // of pinned().
  void to_host(const Tensor& from, const Tensor& to, StreamName on);
  void to_device(const Tensor& from, const Tensor& to, StreamName on);
  int64_t bytes_copied() const { return bytes_copied_; }  // both ways, so far

  // Sets x, of plain() or pinned(), to zero by all threads: first touches of large memory take
  // seconds.
  void set_zero(const Tensor& x);

 private:
  Runtime& device_;
  Runtime plain_, pinned_;
  int64_t bytes_copied_ = 0;
};

// What a rank's run holds in host memory on purpose: nothing if it never asked for any.
HostMemory host_memory(Runtime& device);

}  // namespace phx
