#include "phalanx/text/jinja/string_escapes.h"

#include <charconv>
#include <cstdio>

#include "phalanx/base/error.h"
#include "phalanx/text/jinja/lexer.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

void unescape(std::string_view body, size_t& at, int line, std::string& out) {
  const char c = body[at];
  const auto code = [&](size_t digits) {
    unsigned value = 0;
    const std::string_view hex = body.substr(at + 1, digits);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (error != std::errc() || end != hex.data() + digits)
      syntax_error(line, str_cat("\\", c, " in a string needs ", digits, " hexadecimal digits"));
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      syntax_error(line, str_cat("\\", c, hex, " in a string is no character"));
    append_code_point(value, out);
    at += 1 + digits;
  };
  static constexpr std::string_view kNames = "\\'\"abfnrtv\n", kMeant = "\\'\"\a\b\f\n\r\t\v";
  if (const size_t known = kNames.find(c); known != std::string_view::npos) {
    if (c != '\n') out += kMeant[known];
    ++at;
  } else if (c == 'x') {
    code(2);
  } else if (c == 'u') {
    code(4);
  } else if (c == 'U') {
    code(8);
  } else if (c >= '0' && c <= '7') {
    unsigned value = 0;
    for (int i = 0; i < 3 && at < body.size() && body[at] >= '0' && body[at] <= '7'; ++i)
      value = value * 8 + unsigned(body[at++] - '0');
    append_code_point(value, out);
  } else if (c == 'N') {
    syntax_error(line, "\\N{...} in a string is not supported; write the character itself");
  } else if (static_cast<unsigned char>(c) >= 0x80) {
    // Python escapes the character first, which leaves the text of its escape here.
    const std::string_view character = first_character(body.substr(at));
    const char32_t value = code_point(character);
    char escape[16];
    std::snprintf(escape, sizeof escape,
                  value < 0x100     ? "\\x%02x"
                  : value < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                  unsigned(value));
    out += escape;
    at += character.size();
  } else {
    out += '\\';
    out += c;
    ++at;
  }
}

}  // namespace phx::jinja
