// UTF-8 and the classes of characters, as the Hugging Face tokenizers library sees them: whatever
// versions of Unicode the libraries of this machine follow, ids stay the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/text/tokenizer/unicode_tables.h"

namespace phx {

inline constexpr uint32_t kNumCodes = 0x110000;

// Bits of char_class.
enum CharClass : uint8_t {
  kLetter = 1,        // \p{L}
  kNumber = 2,        // \p{N}
  kSpace = 4,         // \s
  kUpperSide = 8,     // \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}: what o200k's words begin with
  kLowerSide = 16,    // \p{Ll}\p{Lm}\p{Lo}\p{M}: what they end with
  kWord = 32,         // \w of the Rust regular expressions
  kPunctuation = 64,  // what Punctuation and BertPreTokenizer cut at
  kNumeric = 128,     // what Digits cuts at
};

// A table of kNumCodes entries, made at the first call.
const uint8_t* char_classes();
inline uint8_t char_class(uint32_t code) { return char_classes()[code]; }

// The general category, numbered as utf8proc_category_t; by binary search.
int general_category(uint32_t code);

// The number of a script, for the pre-tokenizer UnicodeScripts; 0: goes with any.
int script_of(uint32_t code);

// The code points of a category ("L", "Lu") as ranges in order; empty for an unknown name.
std::vector<CodeRange> category_ranges(std::string_view name);

// A set of code points from a list of ranges in order.
inline bool in_ranges(const CodeRange* ranges, size_t count, uint32_t code) {
  size_t low = 0, high = count;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (ranges[middle].last < code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && ranges[low].first <= code;
}

// The code point at `at` of valid UTF-8, and `at` moves past it.
inline uint32_t next_code(std::string_view text, size_t& at) {
  const auto* p = reinterpret_cast<const uint8_t*>(text.data()) + at;
  if (p[0] < 0x80) return ++at, p[0];
  if (p[0] < 0xE0) return at += 2, (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu);
  if (p[0] < 0xF0) {
    return at += 3, (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
  }
  at += 4;
  return (p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// Bytes of the character that begins with `lead`, in valid UTF-8.
inline size_t code_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// Where the character before `at` begins.
inline size_t previous_code(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

void append_code(std::string& text, uint32_t code);
std::u32string to_codes(std::string_view valid);

// How many bytes of `text` from `at` form one character; 0 when they do not, and `bad` is then how
// many one U+FFFD stands for (the longest beginning of a character, as in Python and Rust).
size_t valid_length(std::string_view text, size_t at, size_t& bad);

// `text` itself when it is valid UTF-8, else a copy in `storage` with U+FFFD for what is not.
std::string_view valid_utf8(std::string_view text, std::string& storage);

// GPT-2's alphabet: a printable character for every byte. -1 for characters outside of it.
uint32_t byte_to_code(uint8_t byte);
int code_to_byte(uint32_t code);

}  // namespace phx
