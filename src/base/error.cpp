#include "phalanx/base/error.h"

namespace phx {

void throw_error(const std::string& message) { throw Error(message); }

void throw_bug(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(str_cat("internal error: ", file, ":", line, ": ", condition, " does not hold",
                      message.empty() ? "" : ": ", message, "; please report this"));
}

}  // namespace phx
