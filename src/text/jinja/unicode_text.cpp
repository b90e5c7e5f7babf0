#include "phalanx/text/jinja/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdio>

#include "phalanx/text/jinja/special_casing.h"

namespace phx::jinja {
namespace {

struct Decoded {
  char32_t c;
  size_t size;
};

// The text is valid, so the first byte says it all.
Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {char32_t((first & 0x1F) << 6 | (byte(1) & 0x3F)), 2};
  if (first < 0xF0)
    return {char32_t((first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)), 3};
  return {char32_t((first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 |
                   (byte(3) & 0x3F)),
          4};
}

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

size_t start_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && continues(text[at])) --at;
  return at;
}

utf8proc_category_t category(char32_t c) {
  return static_cast<utf8proc_category_t>(utf8proc_get_property(utf8proc_int32_t(c))->category);
}

bool is_mark_like(char32_t c) {  // case-ignorable, for the final sigma
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
         kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_SK || c == '\'' || c == '.' || c == ':' || c == 0xB7 ||
         c == 0x2019;
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

const SpecialCase* special_case(char32_t c) {
  const auto* found = std::lower_bound(
      std::begin(kSpecialCases), std::end(kSpecialCases), c,
      [](const SpecialCase& special, char32_t value) { return special.character < value; });
  return found != std::end(kSpecialCases) && found->character == c ? found : nullptr;
}

void append_all(const std::array<char32_t, 3>& characters, std::string& out) {
  for (const char32_t c : characters)
    if (c != 0) append_code_point(c, out);
}

void append_upper(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) return append_all(special->upper, out);
  append_code_point(char32_t(utf8proc_toupper(utf8proc_int32_t(c))), out);
}

void append_title(char32_t c, std::string& out) {
  if (const SpecialCase* special = special_case(c)) return append_all(special->title, out);
  append_code_point(char32_t(utf8proc_totitle(utf8proc_int32_t(c))), out);
}

// A capital sigma at the end of a word becomes a final one: a cased letter before it and none
// after, marks and apostrophes aside.
bool is_final_sigma(std::string_view text, size_t at) {
  bool before = false;
  for (size_t i = at; i > 0;) {
    i = start_before(text, i);
    const char32_t c = decode(text, i).c;
    if (is_mark_like(c)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (size_t i = at + 2; i < text.size();) {
    const auto [c, size] = decode(text, i);
    if (!is_mark_like(c)) return !is_cased(c);
    i += size;
  }
  return true;
}

void append_lower(std::string_view text, size_t at, char32_t c, std::string& out) {
  if (c == 0x130) {  // the only character whose lower case is two
    out += "i\xCC\x87";
  } else if (c == 0x3A3) {
    append_code_point(is_final_sigma(text, at) ? 0x3C2 : 0x3C3, out);
  } else {
    append_code_point(char32_t(utf8proc_tolower(utf8proc_int32_t(c))), out);
  }
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    utf8proc_int32_t c;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + i),
                                       utf8proc_ssize_t(text.size() - i), &c);
    if (size < 1) return false;
    i += size_t(size);
  }
  return true;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

int64_t length_of(std::string_view text) {
  return int64_t(std::ranges::count_if(text, [](char c) { return !continues(c); }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (size_t i = 0; i < text.size();) {
    const size_t size = decode(text, i).size;
    all.push_back(text.substr(i, size));
    i += size;
  }
  return all;
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, decode(text, 0).size);
}

std::string_view slice_of(std::string_view text, int64_t begin, int64_t end) {
  if (is_ascii(text)) return text.substr(size_t(begin), size_t(end - begin));
  size_t at = 0;
  const auto skip = [&](int64_t count) {
    for (; count > 0 && at < text.size(); --count) at += decode(text, at).size;
    return at;
  };
  const size_t first = skip(begin);
  return text.substr(first, skip(end - begin) - first);
}

void append_code_point(char32_t c, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(utf8proc_int32_t(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), size_t(size));
}

char32_t code_point(std::string_view character) { return decode(character, 0).c; }

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return is_cased(c) || kind == UTF8PROC_CATEGORY_LM || kind == UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_cased_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_cased_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::string upper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    append_upper(c, out);
    i += size;
  }
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    append_lower(text, i, c, out);
    i += size;
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    if (i == 0)
      append_title(c, out);
    else
      append_lower(text, i, c, out);
    i += size;
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    if (in_word)
      append_lower(text, i, c, out);
    else
      append_title(c, out);
    in_word = is_cased(c);
    i += size;
  }
  return out;
}

namespace {

template <class Drops>
std::string_view strip_if(std::string_view text, Side side, Drops&& drops) {
  if (side != Side::right) {
    size_t at = 0;
    while (at < text.size()) {
      const auto [c, size] = decode(text, at);
      if (!drops(c)) break;
      at += size;
    }
    text.remove_prefix(at);
  }
  if (side != Side::left) {
    while (!text.empty()) {
      const size_t at = start_before(text, text.size());
      if (!drops(decode(text, at).c)) break;
      text = text.substr(0, at);
    }
  }
  return text;
}

}  // namespace

std::string_view strip(std::string_view text, Side side) { return strip_if(text, side, is_space); }

std::string_view strip(std::string_view text, std::string_view set, Side side) {
  return strip_if(text, side, [&](char32_t c) {
    std::string character;
    append_code_point(c, character);
    return set.find(character) != std::string_view::npos;
  });
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t start = 0;
  bool inside = false;
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    if (is_space(c)) {
      if (inside) words.push_back(text.substr(start, i - start));
      inside = false;
    } else if (!inside) {
      inside = true;
      start = i;
    }
    i += size;
  }
  if (inside) words.push_back(text.substr(start));
  return words;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  const auto ends_line = [](char32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    auto [c, size] = decode(text, i);
    if (ends_line(c)) {
      if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') size = 2;
      lines.push_back(text.substr(start, i - start + (keep_ends ? size : 0)));
      start = i + size;
    }
    i += size;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::string quote(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool twofold = text.find('"') != std::string_view::npos;
  const char mark = single && !twofold ? '"' : '\'';
  std::string out(1, mark);
  for (size_t i = 0; i < text.size();) {
    const auto [c, size] = decode(text, i);
    char escape[16] = "";
    if (c == char32_t(mark) || c == '\\') {
      out += '\\';
      out += char(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(i, size);
    } else {
      std::snprintf(escape, sizeof escape,
                    c < 0x100     ? "\\x%02x"
                    : c < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                    unsigned(c));
      out += escape;
    }
    i += size;
  }
  return out + mark;
}

}  // namespace phx::jinja
