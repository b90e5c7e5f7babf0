// JSON lines: one JSON object a line, so that a file can be appended to and read while it grows.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "phalanx/base/file.h"

namespace phx {

// Calls `each` with every object of the file, in order, and the number of its line (from 1). A last
// line without a line feed is one that a writer was stopped in: it is left out. Any other line that
// is not a JSON object is an error that names the file and the line.
void read_json_lines(const Path& path,
                     const std::function<void(const nlohmann::json&, int64_t line)>& each);

}  // namespace phx
