#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaLexer, WhiteSpaceAroundBlocksIsTrimmedAsTransformersSetsIt) {
  expect_renders({
      {"a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc"},
      {"a {%- if true -%} b {%- endif %} c", "ab c"},
      {"  {%+ if true %}\nx{% endif %}", "  x"},
      {"{{ 1 -}}\n  2", "12"},
      {"{# gone #}\na{#- all -#} b", "ab"},
      {"a\r\nb\rc\n\n", "a\nb\nc\n"},
  });
}

TEST(JinjaLexer, NumbersAndNamesAreReadAsPythonReadsThem) {
  expect_renders({
      {"{{ 1_000 + 31 }}", "1031"},
      {"{{ 1.5e2 }}|{{ 2e0 }}", "150.0|2.0"},
      {"{% set _a1 = 4 %}{{ _a1 }}", "4"},
  });
}

TEST(JinjaLexer, RawBlocksKeepTheirBraces) {
  expect_renders({
      {"{% raw %}{{ x }} {% if %}{% endraw %}!", "{{ x }} {% if %}!"},
  });
}

TEST(JinjaLexer, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 'abc", "a string has no closing '"},
      {"{{ 0x1F }}", "hexadecimal"},
  });
}

}  // namespace
}  // namespace phx::jinja
