// What the Hugging Face tokenizers library believes about Unicode, where libraries of other
// versions differ. The numbers are written by scripts/make_unicode_tables.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace phx {

struct CodeRange {
  uint32_t first, last;
};
struct CodePair {
  uint32_t from, to;
};

extern const uint32_t kCategoryRuns[];  // first code point of a run times 32, plus its category
extern const size_t kNumCategoryRuns;
// First code point of a run times 256, plus the number of its script; 0 goes with any script. Han,
// Hiragana and Katakana are one. Written by scripts/make_script_table.py.
extern const uint32_t kScriptRuns[];
extern const size_t kNumScriptRuns;
extern const CodeRange kPunctuationChanges[], kNumberChanges[], kMarkChanges[],
    kNonspacingChanges[], kControlChanges[], kUndecomposedCodes[], kUnorderedCodes[];
extern const size_t kNumPunctuationChanges, kNumNumberChanges, kNumMarkChanges,
    kNumNonspacingChanges, kNumControlChanges, kNumUndecomposedCodes, kNumUnorderedCodes;
extern const CodePair kLowerCase[];
extern const size_t kNumLowerCase;

}  // namespace phx
