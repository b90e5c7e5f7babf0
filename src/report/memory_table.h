// Memory by purpose, as a table for people.
#pragma once

#include <functional>
#include <string>

#include "phalanx/core/host_side.h"
#include "phalanx/core/memory.h"

namespace phx {

std::string memory_table(const MemoryReport& report);
// One line on what lies in host memory; empty where nothing does.
std::string host_memory_line(const HostMemory& host,
                             const std::function<std::string(int64_t bytes)>& text);

}  // namespace phx
