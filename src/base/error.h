// Errors. PHX_CHECK is for what a caller got wrong: it throws phx::Error, in every build.
// PHX_ASSERT is for what only a bug in Phalanx can break. The library throws; only cli prints and
// exits. This header is seen by .cu files, so it stays free of fmt.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace phx {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Everything streamed into one string.
template <class... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] void throw_error(const std::string& message);
[[noreturn]] void throw_bug(const char* file, int line, const char* condition,
                            const std::string& message);

}  // namespace phx

#define PHX_CHECK(condition, ...)                      \
  do {                                                 \
    if (!(condition)) [[unlikely]]                     \
      ::phx::throw_error(::phx::str_cat(__VA_ARGS__)); \
  } while (0)

#define PHX_ASSERT(condition, ...)                                                   \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::phx::throw_bug(__FILE__, __LINE__, #condition, ::phx::str_cat(__VA_ARGS__)); \
  } while (0)
