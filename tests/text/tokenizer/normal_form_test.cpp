#include <gtest/gtest.h>

#include "phalanx/text/tokenizer/normalizer.h"

namespace phx {
namespace {

TEST(NormalForm, ComposesAndDecomposes) {
  const std::string composed = "\u00e4", apart = "a\u0308";
  EXPECT_EQ(normal_form(NormalForm::nfd, composed), apart);
  EXPECT_EQ(normal_form(NormalForm::nfc, apart), composed);
  EXPECT_EQ(normal_form(NormalForm::nfc, "plain"), "plain");
}

TEST(NormalForm, CompatibilityFormsReplaceLookAlikes) {
  EXPECT_EQ(normal_form(NormalForm::nfkc, "\ufb01\u2460"), "fi1");  // a ligature, a circled one
  EXPECT_EQ(normal_form(NormalForm::nfkd, "\u00e4\ufb01"), "a\u0308fi");
  EXPECT_EQ(normal_form(NormalForm::nfc, "\ufb01"), "\ufb01");
}

TEST(NormalForm, MarksComeInTheirOrder) {  // below before above, however they were typed
  EXPECT_EQ(normal_form(NormalForm::nfd, "a\u0308\u0323"), "a\u0323\u0308");
  EXPECT_EQ(normal_form(NormalForm::nfc, "a\u0308\u0323"), "\u1ea1\u0308");
}

TEST(NormalForm, HangulIsPutTogetherByFormula) {
  EXPECT_EQ(normal_form(NormalForm::nfd, "\ud55c"), "\u1112\u1161\u11ab");
  EXPECT_EQ(normal_form(NormalForm::nfc, "\u1112\u1161\u11ab"), "\ud55c");
}

}  // namespace
}  // namespace phx
