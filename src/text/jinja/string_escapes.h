// Escapes in the strings of a template, as Python reads them: \n, \x41, \u00e4, \101.
#pragma once

#include <string>
#include <string_view>

namespace phx::jinja {

// Appends what a backslash in a string stands for; `at` is behind it and moves on. `line` is for
// the error of a broken escape.
void unescape(std::string_view body, size_t& at, int line, std::string& out);

}  // namespace phx::jinja
