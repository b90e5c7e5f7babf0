#include "phalanx/text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <array>
#include <cstring>

#include "phalanx/base/error.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {

std::string decode_base64(std::string_view text) {
  static const auto values = [] {
    std::array<int8_t, 256> table;
    table.fill(-1);
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < kDigits.size(); ++i) {
      table[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    }
    return table;
  }();
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  PHX_CHECK(text.size() % 4 != 1, "a base64 text has a length of ", text.size(), " digits");
  std::string out;
  out.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = values[static_cast<uint8_t>(c)];
    PHX_CHECK(value >= 0, "a base64 text holds the byte ", int(static_cast<uint8_t>(c)));
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return out;
}

CharsMap::CharsMap(const std::string& base64) {
  const std::string data = decode_base64(base64);
  uint32_t size = 0;
  PHX_CHECK(data.size() >= 4, "precompiled_charsmap has only ", data.size(), " bytes");
  std::memcpy(&size, data.data(), 4);
  PHX_CHECK(size % 4 == 0 && size > 0 && size <= data.size() - 4,
            "precompiled_charsmap should begin with a trie of ", size, " bytes, but has ",
            data.size() - 4);
  units_.resize(size / 4);
  std::memcpy(units_.data(), data.data() + 4, size);
  texts_ = data.substr(4 + size);
}

bool CharsMap::transform(std::string_view chunk, std::string& out) const {
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); };
  size_t node = offset(units_[0]);
  for (const char c : chunk) {
    const auto label = static_cast<uint8_t>(c);
    node ^= label;
    if (label == 0 || node >= units_.size()) return false;
    const uint32_t unit = units_[node];
    if ((unit & (1u << 31 | 0xFF)) != label) return false;
    node ^= offset(unit);
    if (unit >> 8 & 1) {
      PHX_CHECK(node < units_.size(), "precompiled_charsmap leads out of its trie");
      const size_t begin = units_[node] & 0x7FFFFFFF;
      PHX_CHECK(begin <= texts_.size(), "precompiled_charsmap leads out of its texts");
      std::string unused;
      out += valid_utf8(std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin),
                        unused);
      return true;
    }
  }
  return false;
}

std::string CharsMap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    uint32_t code = next_code(text, end);
    utf8proc_int32_t state = 0;
    while (end < text.size()) {
      size_t after = end;
      const uint32_t next = next_code(text, after);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(code),
                                           static_cast<utf8proc_int32_t>(next), &state)) {
        break;
      }
      code = next;
      end = after;
    }
    if (end - begin >= 6 || !transform(text.substr(begin, end - begin), out)) {
      for (size_t at = begin; at < end;) {
        const std::string_view part = text.substr(at, code_length(text[at]));
        if (!transform(part, out)) out += part;
        at += part.size();
      }
    }
    begin = end;
  }
  return out;
}

}  // namespace phx
