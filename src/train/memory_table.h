// Memory by purpose, as a table for people.
#pragma once

#include <string>

#include "core/memory.h"

namespace phx {

std::string memory_table(const MemoryReport& report);

}  // namespace phx
