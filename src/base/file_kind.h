// What a file is by its first bytes, so that an error can say "this is gzip data" where somebody
// expected text.
#pragma once

#include <string>
#include <string_view>

#include "phalanx/base/file.h"

namespace phx {

// "gzip data", "a GGUF model", ...; empty for bytes that begin no known binary format. 16 bytes are
// enough.
std::string_view binary_kind(std::string_view first_bytes);

// The same of a file; empty for what is no regular file or cannot be read.
std::string_view binary_kind_of(const Path& path);

}  // namespace phx
