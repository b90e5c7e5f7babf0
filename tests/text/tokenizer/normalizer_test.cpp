#include "phalanx/text/tokenizer/normalizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/temp_folder.h"

namespace phx {
namespace {

using Json = nlohmann::json;

std::string normal(const Json& json, std::string_view text) {
  return make_normalizer(json)->apply(text);
}

TEST(Normalizer, LowerCaseIsUnicodes) {
  EXPECT_EQ(normal({{"type", "Lowercase"}}, "A\u00c4\u0416z"), "a\u00e4\u0436z");
  EXPECT_EQ(normal({{"type", "Lowercase"}}, "\u0130"), "i\u0307") << "one letter becomes two";
}

TEST(Normalizer, FormsComposeAndDecompose) {
  EXPECT_EQ(normal({{"type", "NFD"}}, "\u00e9"), "e\u0301");
  EXPECT_EQ(normal({{"type", "NFC"}}, "e\u0301"), "\u00e9");
  EXPECT_EQ(normal({{"type", "NFKC"}}, "\ufb01"), "fi");
  EXPECT_EQ(normal({{"type", "NFC"}}, "\ufb01"), "\ufb01");
}

TEST(Normalizer, AccentsGoOnlyWhenTheyAreMarksOfTheirOwn) {
  EXPECT_EQ(normal({{"type", "StripAccents"}}, "e\u0301\u00e9"), "e\u00e9");
}

TEST(Normalizer, BertCleansSpacesChineseAndAccents) {
  EXPECT_EQ(normal({{"type", "BertNormalizer"}}, "\u00c9\x01\ta\u4e2d"), "e a \u4e2d ");
  EXPECT_EQ(normal({{"type", "BertNormalizer"}, {"lowercase", false}}, "\u00c9"), "\u00c9")
      << "accents go with upper case unless the file says otherwise";
  EXPECT_EQ(
      normal({{"type", "BertNormalizer"}, {"lowercase", false}, {"strip_accents", true}}, "\u00c9"),
      "E");
}

TEST(Normalizer, StripTakesSpacesOfTheSidesItNames) {
  EXPECT_EQ(normal({{"type", "Strip"}}, " \u3000a b\n"), "a b");
  EXPECT_EQ(normal({{"type", "Strip"}, {"strip_left", false}}, " a "), " a");
  EXPECT_EQ(normal({{"type", "Strip"}}, " \u00a0 "), "");
}

TEST(Normalizer, NothingIsPutBeforeAnEmptyText) {
  const Json json = {{"type", "Prepend"}, {"prepend", "_"}};
  EXPECT_EQ(normal(json, "a"), "_a");
  EXPECT_EQ(normal(json, ""), "");
}

TEST(Normalizer, PartsOfASequenceRunInOrder) {
  const Json json = {{"type", "Sequence"},
                     {"normalizers",
                      {{{"type", "Replace"}, {"pattern", {{"String", "A"}}}, {"content", "B"}},
                       {{"type", "Lowercase"}},
                       {{"type", "ByteLevel"}}}}};
  EXPECT_EQ(normal(json, "A b"), "b\u0120b");
}

TEST(Normalizer, NmtDropsControlsAndMakesOddSpacesPlain) {
  EXPECT_EQ(normal({{"type", "Nmt"}}, "a\x02\tb\u200bc"), "a b c");
}

TEST(Normalizer, NullIsNoneAndAnUnknownKindIsNamed) {
  EXPECT_EQ(make_normalizer(Json()), nullptr);
  EXPECT_EQ(error_of([] {
              make_normalizer(Json{{"type", "Rot13"}});
            }),
            "the normalizer Rot13 is not supported");
}

}  // namespace
}  // namespace phx
