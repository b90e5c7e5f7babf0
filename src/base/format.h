// Numbers as people read them, and names from files that are fit to be printed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace phx {

std::string format_bytes(int64_t bytes);       // "512 B", "1.23 GiB"
std::string format_count(double count);        // "950", "1.24 k", "8.03 B", "15.0 T"
std::string format_thousands(int64_t number);  // "8,030,261,248"
std::string format_duration(double seconds);   // "850 ms", "12.3 s", "3 min 05 s", "2 d 07 h"

// Text from a file of others, for a message: at most 120 bytes, control characters as '?'.
std::string printable(std::string_view text);

}  // namespace phx
