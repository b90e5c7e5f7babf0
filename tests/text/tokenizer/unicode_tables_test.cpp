#include "phalanx/text/tokenizer/unicode_tables.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <nlohmann/json.hpp>
#include <span>

#include "phalanx/text/tokenizer/normalizer.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {
namespace {

TEST(UnicodeTables, RunsOfCategoriesCoverAllCodesInOrder) {
  EXPECT_EQ(kCategoryRuns[0] / 32, 0u);
  for (size_t i = 0; i < kNumCategoryRuns; ++i) {
    EXPECT_LT(kCategoryRuns[i] / 32, kNumCodes);
    EXPECT_LE(kCategoryRuns[i] % 32, uint32_t(UTF8PROC_CATEGORY_CO));
    if (i == 0) continue;
    EXPECT_LT(kCategoryRuns[i - 1] / 32, kCategoryRuns[i] / 32);
    EXPECT_NE(kCategoryRuns[i - 1] % 32, kCategoryRuns[i] % 32) << "one run, not two";
  }
}

TEST(UnicodeTables, RangesAreInOrderAndApart) {  // in_ranges() searches them by halves
  for (const auto ranges :
       {std::span(kPunctuationChanges, kNumPunctuationChanges),
        std::span(kNumberChanges, kNumNumberChanges), std::span(kMarkChanges, kNumMarkChanges),
        std::span(kNonspacingChanges, kNumNonspacingChanges),
        std::span(kControlChanges, kNumControlChanges),
        std::span(kUndecomposedCodes, kNumUndecomposedCodes),
        std::span(kUnorderedCodes, kNumUnorderedCodes)}) {
    ASSERT_FALSE(ranges.empty());
    for (size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_LE(ranges[i].first, ranges[i].last);
      if (i > 0) EXPECT_LT(ranges[i - 1].last, ranges[i].first);
    }
  }
}

TEST(UnicodeTables, CategoriesAreThoseOfUnicode) {
  for (const auto& [code, category] : {std::pair<uint32_t, int>{'a', UTF8PROC_CATEGORY_LL},
                                       {'A', UTF8PROC_CATEGORY_LU},
                                       {'7', UTF8PROC_CATEGORY_ND},
                                       {' ', UTF8PROC_CATEGORY_ZS},
                                       {'_', UTF8PROC_CATEGORY_PC},
                                       {0x1C5, UTF8PROC_CATEGORY_LT},   // a digraph in title case
                                       {0x301, UTF8PROC_CATEGORY_MN},   // an accent
                                       {0x2163, UTF8PROC_CATEGORY_NL},  // a Roman four
                                       {0x4E2D, UTF8PROC_CATEGORY_LO},  // a Chinese character
                                       {0xD800, UTF8PROC_CATEGORY_CS},  // a surrogate
                                       {0xE000, UTF8PROC_CATEGORY_CO},  // for private use
                                       {0x10FFFF, UTF8PROC_CATEGORY_CN}})
    EXPECT_EQ(general_category(code), category) << std::hex << code;
}

TEST(UnicodeTables, LowerCaseOfNewLettersIsLowerCaseItself) {
  const auto lower = make_normalizer(nlohmann::json{{"type", "Lowercase"}});
  for (size_t i = 0; i < kNumLowerCase; ++i) {
    if (i > 0) EXPECT_LT(kLowerCase[i - 1].from, kLowerCase[i].from);
    std::string upper, to;
    append_code(upper, kLowerCase[i].from);
    append_code(to, kLowerCase[i].to);
    EXPECT_EQ(lower->apply(upper), to) << std::hex << kLowerCase[i].from;
    EXPECT_EQ(lower->apply(to), to) << std::hex << kLowerCase[i].to;
  }
}

}  // namespace
}  // namespace phx
