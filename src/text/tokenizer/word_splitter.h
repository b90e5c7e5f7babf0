// The common pre-tokenizer patterns, written by hand: where the word that begins at a position
// ends. Each of these patterns matches everywhere, so words follow one another without a gap. They
// do what PCRE2 does with the pattern itself; a property test holds them to it.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "phalanx/text/tokenizer/unicode.h"

namespace phx {

enum class WordPattern { gpt2, cl100k, qwen2, tiktoken_v1, o200k, tekken };

// The splitter that does what `pattern` does; none when there is none.
std::optional<WordPattern> known_pattern(std::string_view pattern);
// A pattern that `word_end` follows, for tests and for tokenizers that name it only.
const char* pattern_text(WordPattern pattern);

// Everything but what the inline cases below have: the end of the word that begins at `at`.
template <WordPattern kPattern>
size_t general_word_end(std::string_view text, size_t at);

// The high bit of every byte that is no ASCII letter.
inline uint64_t other_than_letters(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHigh = 0x80 * kOnes;
  const uint64_t low = (bytes | 0x20 * kOnes) & 0x7F * kOnes;
  // A byte's high bit is set from 'a' on in the first sum, beyond 'z' in the second.
  const uint64_t letters = (low + (0x80 - 'a') * kOnes) & ~(low + (0x7F - 'z') * kOnes) & ~bytes;
  return ~letters & kHigh;
}

// The first byte at or after `at` that is no ASCII letter; eight bytes at a time.
inline size_t ascii_letters_end(std::string_view text, size_t at) {
  while (at + 8 <= text.size()) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + at, 8);
    const uint64_t others = other_than_letters(bytes);
    if (others != 0) return at + static_cast<size_t>(std::countr_zero(others)) / 8;
    at += 8;
  }
  while (at < text.size() && static_cast<uint8_t>((text[at] | 0x20) - 'a') < 26) ++at;
  return at;
}

constexpr bool is_ascii_letter(char c) { return static_cast<uint8_t>((c | 0x20) - 'a') < 26; }
constexpr bool is_ascii_digit(char c) { return static_cast<uint8_t>(c - '0') < 10; }
constexpr bool is_ascii_sign(char c) {
  return c > ' ' && c < 0x7F && !is_ascii_letter(c) && !is_ascii_digit(c);
}

// Whether an ASCII character that is no letter belongs to the letters behind it.
template <WordPattern kPattern>
constexpr bool leads_letters(char c) {
  if (kPattern == WordPattern::gpt2) return c == ' ';
  if (c == '\'' && kPattern != WordPattern::tiktoken_v1) return false;  // it may be 's
  return c >= 0 && c != '\r' && c != '\n' && !is_ascii_digit(c);
}

#if defined(__x86_64__)
// The size of the word that 16 bytes begin with, if that is ASCII letters with or without a leading
// character, and is over before the last byte; otherwise 0. Without a branch on where it ends.
template <WordPattern kPattern>
inline size_t letters_word_size(const char* bytes) {
  const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  const __m128i lower = _mm_or_si128(text, _mm_set1_epi8(0x20));
  const __m128i place = _mm_sub_epi8(lower, _mm_set1_epi8('a'));  // in the alphabet
  const __m128i is_letter = _mm_cmpeq_epi8(_mm_min_epu8(place, _mm_set1_epi8(25)), place);
  const auto letters = static_cast<uint32_t>(_mm_movemask_epi8(is_letter));
  const auto size = static_cast<size_t>(std::countr_one(letters | 1));
  const bool leads = size > 1 && leads_letters<kPattern>(bytes[0]);
  return size < 16 && ((letters & 1) != 0 || leads) ? size : 0;
}
#endif

// Most words of most texts are a space and ASCII letters, a sign before a space, or a line end
// before a word: those are cut here.
template <WordPattern kPattern>
inline size_t word_end(std::string_view text, size_t at) {
  constexpr bool kCased = kPattern == WordPattern::o200k || kPattern == WordPattern::tekken;
  constexpr bool kIsGpt2 = kPattern == WordPattern::gpt2;
#if defined(__x86_64__)
  if (!kCased && at + 16 <= text.size()) {
    const size_t size = letters_word_size<kPattern>(text.data() + at);
    // A letter beyond ASCII may follow.
    if (size != 0 && static_cast<uint8_t>(text[at + size]) < 0x80) return at + size;
  }
#endif
  const char here = text[at];
  const size_t first = at + (here == ' ');
  if (first < text.size() && is_ascii_letter(text[first])) {
    size_t end = first + 1;
    if constexpr (!kCased) {
      end = ascii_letters_end(text, end);
    } else {
      while (end < text.size() && static_cast<uint8_t>(text[end] - 'a') < 26) ++end;
      if (end == first + 1 && static_cast<uint8_t>(text[first] - 'A') < 26) {
        return general_word_end<kPattern>(text, at);
      }
      // A mark, a lower letter or a suffix may follow; a capital begins the next word.
      if (end < text.size() && static_cast<uint8_t>(text[end] - 'A') < 26) return end;
      if (kPattern == WordPattern::o200k && end < text.size() && text[end] == '\'') {
        return general_word_end<kPattern>(text, at);
      }
    }
    if (end == text.size() || static_cast<uint8_t>(text[end]) < 0x80) return end;
  } else if (at + 1 < text.size()) {
    const char next = text[at + 1];
    if (next == ' ' && is_ascii_sign(here)) return at + 1;
    if (here == '\n' && next > ' ' && next < 0x7F) return at + 1;
    if (!kIsGpt2 && !kCased && is_ascii_sign(here) && here != '\'' && is_ascii_letter(next)) {
      const size_t end = ascii_letters_end(text, at + 2);
      if (end == text.size() || static_cast<uint8_t>(text[end]) < 0x80) return end;
    }
  }
  return general_word_end<kPattern>(text, at);
}

// Calls f.template operator()<pattern>() so that loops over words are compiled for each pattern.
template <class F>
decltype(auto) for_word_pattern(WordPattern pattern, F&& f) {
  switch (pattern) {
    case WordPattern::gpt2:
      return f.template operator()<WordPattern::gpt2>();
    case WordPattern::cl100k:
      return f.template operator()<WordPattern::cl100k>();
    case WordPattern::qwen2:
      return f.template operator()<WordPattern::qwen2>();
    case WordPattern::tiktoken_v1:
      return f.template operator()<WordPattern::tiktoken_v1>();
    case WordPattern::o200k:
      return f.template operator()<WordPattern::o200k>();
    case WordPattern::tekken:
      break;
  }
  return f.template operator()<WordPattern::tekken>();
}

}  // namespace phx
