#include "phalanx/text/tokenizer/word_splitter.h"

#include <array>

namespace phx {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kCl100k =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTiktokenV1 =  // Megatron's
    R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// The classes of ASCII, at hand without the large table.
constexpr auto kAsciiClasses = [] {
  std::array<uint8_t, 128> table{};
  for (int c = 0; c < 128; ++c) {
    const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
    if (upper) table[c] = kLetter | kUpperSide;
    if (lower) table[c] = kLetter | kLowerSide;
    if (c >= '0' && c <= '9') table[c] = kNumber;
    if (c == ' ' || (c >= '\t' && c <= '\r')) table[c] = kSpace;
  }
  return table;
}();

// Reads characters of valid UTF-8 by class; past the end the class is 0 and the length 0.
struct Reader {
  std::string_view text;

  uint8_t at(size_t position, size_t& after) const {
    after = position;
    if (position >= text.size()) return 0;
    const auto byte = static_cast<uint8_t>(text[position]);
    if (byte < 0x80) return ++after, kAsciiClasses[byte];
    return char_class(next_code(text, after));
  }
  size_t letters_end(size_t position) const {
    while (true) {
      position = ascii_letters_end(text, position);
      if (position == text.size() || static_cast<uint8_t>(text[position]) < 0x80) return position;
      size_t after;
      if (!(at(position, after) & kLetter)) return position;
      position = after;
    }
  }
  // The end of the run of characters with one of the bits, `limit` characters at most.
  size_t run(size_t position, uint8_t bits, size_t limit = SIZE_MAX) const {
    for (size_t after; limit > 0 && (at(position, after) & bits); --limit) position = after;
    return position;
  }
  // The end of the run of characters that are neither letters nor numbers nor spaces.
  size_t other_run(size_t position) const {
    for (size_t after; position < text.size(); position = after) {
      if (at(position, after) & (kLetter | kNumber | kSpace)) break;
    }
    return position;
  }
  bool is_line_end(size_t position) const {
    return position < text.size() && (text[position] == '\r' || text[position] == '\n');
  }
};

// The end of 's, 't, 're, 've, 'm, 'll or 'd at `at`, or `at` when there is none.
size_t contraction_end(std::string_view text, size_t at, bool any_case) {
  if (at >= text.size() || text[at] != '\'') return at;
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return '\0';
    return any_case && static_cast<uint8_t>(text[i] - 'A') < 26 ? static_cast<char>(text[i] | 0x20)
                                                                : text[i];
  };
  const char a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  // The long s is an s whatever the case.
  if (any_case && text.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
  return at;
}

// Upper letters and marks, then lower letters and marks: o200k's words, without what may stand
// before them. `at` when there is no such word.
size_t cased_word_end(const Reader& reader, size_t at) {
  size_t position = at, last_lower = at, after;
  for (uint8_t c; (c = reader.at(position, after)) & kUpperSide; position = after) {
    if (c & kLowerSide) last_lower = after;
  }
  const size_t lower_end = reader.run(position, kLowerSide);
  return lower_end > position ? lower_end : last_lower;
}

// Spaces: up to the last line end (where lines matter), else all but the one before a word.
size_t spaces_end(const Reader& reader, size_t at, bool lines) {
  size_t position = at, last = at, line = at, after;
  while (reader.at(position, after) & kSpace) {
    last = position;
    if (lines && reader.is_line_end(position)) line = after;
    position = after;
  }
  if (line > at) return line;
  return position == reader.text.size() || last == at ? position : last;
}

}  // namespace

std::optional<WordPattern> known_pattern(std::string_view pattern) {
  for (const WordPattern known :
       {WordPattern::gpt2, WordPattern::cl100k, WordPattern::qwen2, WordPattern::tiktoken_v1,
        WordPattern::o200k, WordPattern::tekken}) {
    if (pattern == pattern_text(known)) return known;
  }
  return std::nullopt;
}

const char* pattern_text(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::gpt2:
      return kGpt2;
    case WordPattern::cl100k:
      return kCl100k;
    case WordPattern::qwen2:
      return kQwen2;
    case WordPattern::tiktoken_v1:
      return kTiktokenV1;
    case WordPattern::o200k:
      return kO200k;
    case WordPattern::tekken:
      break;
  }
  return kTekken;
}

template <WordPattern kPattern>
size_t general_word_end(std::string_view text, size_t at) {
  constexpr bool kIsGpt2 = kPattern == WordPattern::gpt2;
  constexpr bool kCased = kPattern == WordPattern::o200k || kPattern == WordPattern::tekken;
  constexpr size_t kDigits = kIsGpt2 ? SIZE_MAX
                             : kPattern == WordPattern::cl100k || kPattern == WordPattern::o200k
                                 ? 3
                                 : 1;
  const Reader reader{text};
  size_t after, beyond;
  const uint8_t here = reader.at(at, after);

  if constexpr (!kCased && kPattern != WordPattern::tiktoken_v1) {
    const size_t end = contraction_end(text, at, !kIsGpt2);
    if (end > at) return end;
  }
  const bool space = text[at] == ' ';
  // What may stand before a word: a space for GPT-2, else all but line ends, letters and numbers.
  const bool lead =
      kIsGpt2 ? space : !(here & (kLetter | kNumber)) && text[at] != '\r' && text[at] != '\n';
  if constexpr (kCased) {
    const auto with_suffix = [&](size_t end) {
      return kPattern == WordPattern::o200k ? contraction_end(text, end, true) : end;
    };
    // As the alternatives are tried: a word that ends low, with and without a lead, then capitals.
    for (const size_t first : {lead ? after : at, at}) {
      const size_t end = cased_word_end(reader, first);
      if (end > first) return with_suffix(end);
    }
    for (const size_t first : {lead ? after : at, at}) {
      const size_t end = reader.run(first, kUpperSide);
      if (end > first) return with_suffix(end);
    }
  } else {
    if (here & kLetter) return reader.letters_end(after);
    if (lead && (reader.at(after, beyond) & kLetter)) return reader.letters_end(beyond);
  }
  if (here & kNumber) return reader.run(at, kNumber, kDigits);
  if (kIsGpt2 && space && (reader.at(after, beyond) & kNumber)) return reader.run(beyond, kNumber);

  const size_t first = space && reader.other_run(after) > after ? after : at;
  size_t end = reader.other_run(first);
  if (end > first) {
    if constexpr (!kIsGpt2) {
      while (reader.is_line_end(end) || (kCased && end < text.size() && text[end] == '/')) ++end;
    }
    return end;
  }
  return spaces_end(reader, at, !kIsGpt2);
}

template size_t general_word_end<WordPattern::gpt2>(std::string_view, size_t);
template size_t general_word_end<WordPattern::cl100k>(std::string_view, size_t);
template size_t general_word_end<WordPattern::qwen2>(std::string_view, size_t);
template size_t general_word_end<WordPattern::tiktoken_v1>(std::string_view, size_t);
template size_t general_word_end<WordPattern::o200k>(std::string_view, size_t);
template size_t general_word_end<WordPattern::tekken>(std::string_view, size_t);

}  // namespace phx
