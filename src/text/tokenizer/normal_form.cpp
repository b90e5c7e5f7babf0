#include <utf8proc.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "phalanx/text/tokenizer/normalizer.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

constexpr uint32_t kHangulSyllables = 0xAC00, kHangulLead = 0x1100, kHangulVowel = 0x1161,
                   kHangulTail = 0x11A7;
constexpr uint32_t kNumVowels = 21, kNumTails = 28, kNumLeads = 19;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

int combining_class(uint32_t code) {
  if (code < 0x300) return 0;
  if (in_ranges(kUnorderedCodes, kNumUnorderedCodes, code)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

void append_decomposed(uint32_t code, bool compatible, std::vector<uint32_t>& out) {
  if (code < 0xA0 || in_ranges(kUndecomposedCodes, kNumUndecomposedCodes, code)) {
    out.push_back(code);
    return;
  }
  utf8proc_int32_t parts[32];
  const int options = UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0);
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, 32,
                                             static_cast<utf8proc_option_t>(options), nullptr);
  if (count <= 0 || count > 32) {  // code points that utf8proc does not know
    out.push_back(code);
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back(static_cast<uint32_t>(parts[i]));
}

// Marks after a starter stand in the order of their classes.
void order_marks(std::vector<uint32_t>& codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    if (combining_class(codes[i]) == 0) continue;
    size_t end = i + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    if (end - i > 1) {
      std::stable_sort(
          codes.begin() + static_cast<ptrdiff_t>(i), codes.begin() + static_cast<ptrdiff_t>(end),
          [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
    }
    i = end;
  }
}

// (first, second) -> what they compose to, from the decompositions that utf8proc has.
class Composer {
 public:
  Composer() {
    struct Whole {
      uint32_t code;
      std::vector<uint32_t> parts;
    };
    std::vector<Whole> wholes;
    for (uint32_t code = 0xC0; code < 0x30000; ++code) {
      const bool hangul = code >= kHangulSyllables && code < kHangulSyllables + kNumSyllables;
      if (hangul || utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->comp_exclusion) {
        continue;
      }
      std::vector<uint32_t> parts;
      append_decomposed(code, false, parts);
      if (parts.size() > 1) wholes.push_back({code, std::move(parts)});
    }
    // A whole of three parts is one of two and a third: shorter ones come first.
    std::stable_sort(wholes.begin(), wholes.end(), [](const Whole& a, const Whole& b) {
      return a.parts.size() < b.parts.size();
    });
    for (const Whole& whole : wholes) {
      uint32_t first = whole.parts[0];
      bool known = true;
      for (size_t i = 1; i + 1 < whole.parts.size() && known; ++i) {
        const uint32_t both = compose(first, whole.parts[i]);
        known = both != 0;
        first = both;
      }
      if (known) pairs_.emplace(key(first, whole.parts.back()), whole.code);
    }
  }

  uint32_t compose(uint32_t first, uint32_t second) const {  // 0 when they stay two
    if (first - kHangulLead < kNumLeads && second - kHangulVowel < kNumVowels) {
      return kHangulSyllables +
             ((first - kHangulLead) * kNumVowels + second - kHangulVowel) * kNumTails;
    }
    if (first - kHangulSyllables < kNumSyllables && (first - kHangulSyllables) % kNumTails == 0 &&
        second > kHangulTail && second < kHangulTail + kNumTails) {
      return first + second - kHangulTail;
    }
    const auto found = pairs_.find(key(first, second));
    return found == pairs_.end() ? 0 : found->second;
  }

 private:
  static uint64_t key(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

  std::unordered_map<uint64_t, uint32_t> pairs_;
};

void compose_marks(std::vector<uint32_t>& codes) {
  static const Composer composer;
  size_t out = 0, starter = SIZE_MAX;
  int last_class = -1;  // of what stands between the starter and here
  for (const uint32_t code : codes) {
    const int own = combining_class(code);
    if (starter != SIZE_MAX && (last_class < own || last_class == -1)) {
      if (const uint32_t both = composer.compose(codes[starter], code)) {
        codes[starter] = both;
        continue;
      }
    }
    if (own == 0) {
      starter = out;
      last_class = -1;
    } else {
      last_class = own;
    }
    codes[out++] = code;
  }
  codes.resize(out);
}

}  // namespace

std::string normal_form(NormalForm form, std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
  if (ascii) return std::string(text);
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<uint32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_decomposed(next_code(text, at), compatible, codes);
  order_marks(codes);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) compose_marks(codes);
  std::string out;
  out.reserve(text.size());
  for (const uint32_t code : codes) append_code(out, code);
  return out;
}

}  // namespace phx
