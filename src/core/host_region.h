// A large piece of host memory in large pages, with every page already there: the first write to
// it does not wait for the system. Several threads fault it in, since one makes about 4 GiB a
// second.
#pragma once

#include <cstdint>
#include <memory>

namespace phx {

// Aligned to 2 MiB. Throws if the system has no such memory.
std::shared_ptr<void> host_region(int64_t bytes);

}  // namespace phx
