// Which program this is.
#pragma once

#include <string>

namespace phx {

std::string program_version();  // "0.1.0"
// The linker's number of this binary, a checksum of all that is in it; empty where it wrote none.
// Two builds of the same version differ in it as soon as one line of code does.
std::string build_id();

}  // namespace phx
