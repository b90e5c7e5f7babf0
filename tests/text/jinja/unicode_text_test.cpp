#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaUnicodeText, CountsAndCutsCharactersNotBytes) {
  expect_renders({
      {"{{ 'äöü😀'|length }}|{{ 'äöü😀'[1:3] }}|{{ 'äöü😀'[::-1] }}|{{ 'é'.upper() }}|{{ "
       "'ŒUVRE'.lower() }}",
       "4|öü|😀üöä|É|œuvre"},
      {"{{ 'ǆ'.title() }}|{{ 'ﬁ'.upper() }}|{{ 'ΑΣ'.lower() }}|{{ '\302\240x\342\200\203'.strip() "
       "}}",
       "ǅ|FI|ας|x"},
  });
}

}  // namespace
}  // namespace phx::jinja
