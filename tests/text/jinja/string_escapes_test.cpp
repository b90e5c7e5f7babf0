#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaStringEscapes, StandForTheCharactersOfPython) {
  expect_renders({
      {"{{ 'a\\tb\\\\n\\'\\\"' }}", "a\tb\\n'\""},
      {"{{ '\\x41\\u00e4\\U0001F600' }}", "Aä😀"},
      {"{{ '\\101\\60' }}", "A0"},
      {"{{ 'a\\\nb' }}", "ab"},
  });
}

TEST(JinjaStringEscapes, UnknownOnesStayAsTheyAre) {
  expect_renders({
      {"{{ '\\q\\-' }}", "\\q\\-"},
  });
}

TEST(JinjaStringEscapes, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ '\\xZZ' }}", "needs 2 hexadecimal digits"},
      {"{{ '\\ud800' }}", "is no character"},
  });
}

}  // namespace
}  // namespace phx::jinja
