#include "phalanx/text/tokenizer/unicode.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <memory>

namespace phx {
namespace {

// utf8proc_category_t's order, which kCategoryRuns has too.
constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                       "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                       "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

uint8_t class_of(std::string_view name) {
  const char group = name[0], kind = name[1];
  uint8_t bits = 0;
  if (group == 'L') bits |= kLetter | kWord;
  if (group == 'N') bits |= kNumber | kNumeric;
  if (group == 'M') bits |= kWord | kUpperSide | kLowerSide;
  if (group == 'P') bits |= kPunctuation;
  if (name == "Nd" || name == "Nl" || name == "Pc") bits |= kWord;
  if (group == 'L' && kind != 'l') bits |= kUpperSide;
  if (group == 'L' && kind != 'u' && kind != 't') bits |= kLowerSide;
  return bits;
}

std::unique_ptr<uint8_t[]> make_classes() {
  auto table = std::make_unique<uint8_t[]>(kNumCodes);
  for (size_t i = 0; i < kNumCategoryRuns; ++i) {
    const uint32_t first = kCategoryRuns[i] / 32;
    const uint32_t end = i + 1 < kNumCategoryRuns ? kCategoryRuns[i + 1] / 32 : kNumCodes;
    std::fill(&table[first], &table[0] + end, class_of(kNames[kCategoryRuns[i] % 32]));
  }
  const auto set = [&](uint32_t first, uint32_t last, uint8_t bits) {
    for (uint32_t code = first; code <= last; ++code) table[code] |= bits;
  };
  for (const CodeRange space :
       {CodeRange{0x9, 0xD}, CodeRange{0x20, 0x20}, CodeRange{0x85, 0x85}, CodeRange{0xA0, 0xA0},
        CodeRange{0x1680, 0x1680}, CodeRange{0x2000, 0x200A}, CodeRange{0x2028, 0x2029},
        CodeRange{0x202F, 0x202F}, CodeRange{0x205F, 0x205F}, CodeRange{0x3000, 0x3000}}) {
    set(space.first, space.last, kSpace);
  }
  // Alphabetic without being letters, and the joiners.
  for (const CodeRange word :
       {CodeRange{0x200C, 0x200D}, CodeRange{0x24B6, 0x24E9}, CodeRange{0x1F130, 0x1F149},
        CodeRange{0x1F150, 0x1F169}, CodeRange{0x1F170, 0x1F189}}) {
    set(word.first, word.last, kWord);
  }
  for (const char symbol : std::string_view("$+<=>^`|~")) {
    table[static_cast<uint8_t>(symbol)] |= kPunctuation;
  }
  const auto flip = [&](const CodeRange* ranges, size_t count, uint8_t bit) {
    for (size_t i = 0; i < count; ++i) {
      for (uint32_t code = ranges[i].first; code <= ranges[i].last; ++code) table[code] ^= bit;
    }
  };
  flip(kPunctuationChanges, kNumPunctuationChanges, kPunctuation);
  flip(kNumberChanges, kNumNumberChanges, kNumeric);
  return table;
}

struct ByteAlphabet {
  std::array<uint32_t, 256> codes;
  std::array<int16_t, 512> bytes;

  ByteAlphabet() {
    bytes.fill(-1);
    uint32_t spare = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      codes[byte] = printable ? byte : spare++;
      bytes[codes[byte]] = static_cast<int16_t>(byte);
    }
  }
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

}  // namespace

const uint8_t* char_classes() {
  static const std::unique_ptr<uint8_t[]> table = make_classes();
  return table.get();
}

int general_category(uint32_t code) {
  const uint32_t* found =
      std::upper_bound(kCategoryRuns, kCategoryRuns + kNumCategoryRuns, code * 32 + 31);
  return static_cast<int>(found[-1] % 32);
}

int script_of(uint32_t code) {
  const uint32_t* found =
      std::upper_bound(kScriptRuns, kScriptRuns + kNumScriptRuns, code * 256 + 255);
  return static_cast<int>(found[-1] % 256);
}

std::vector<CodeRange> category_ranges(std::string_view name) {
  std::vector<CodeRange> ranges;
  for (size_t i = 0; i < kNumCategoryRuns; ++i) {
    const std::string_view category = kNames[kCategoryRuns[i] % 32];
    if (name.empty() || category.substr(0, name.size()) != name) continue;
    const uint32_t first = kCategoryRuns[i] / 32;
    const uint32_t end = i + 1 < kNumCategoryRuns ? kCategoryRuns[i + 1] / 32 : kNumCodes;
    if (!ranges.empty() && ranges.back().last + 1 == first) {
      ranges.back().last = end - 1;
    } else {
      ranges.push_back({first, end - 1});
    }
  }
  return ranges;
}

void append_code(std::string& text, uint32_t code) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
  }
}

std::u32string to_codes(std::string_view valid) {
  std::u32string codes;
  codes.reserve(valid.size());
  for (size_t at = 0; at < valid.size();) codes.push_back(next_code(valid, at));
  return codes;
}

size_t valid_length(std::string_view text, size_t at, size_t& bad) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0;
  };
  const uint8_t lead = byte(0);
  bad = 1;
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  // The second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (bad = 2; bad < length; ++bad) {
    if ((byte(bad) & 0xC0) != 0x80) return 0;
  }
  return length;
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  if (text.empty() || simdjson::validate_utf8(text.data(), text.size())) return text;
  storage.clear();
  storage.reserve(text.size() + text.size() / 8);
  for (size_t at = 0; at < text.size();) {
    size_t bad = 0;
    const size_t length = valid_length(text, at, bad);
    if (length > 0) {
      storage.append(text, at, length);
    } else {
      storage += "\xEF\xBF\xBD";
    }
    at += length > 0 ? length : bad;
  }
  return storage;
}

uint32_t byte_to_code(uint8_t byte) { return byte_alphabet().codes[byte]; }

int code_to_byte(uint32_t code) { return code < 512 ? byte_alphabet().bytes[code] : -1; }

}  // namespace phx
