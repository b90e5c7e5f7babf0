#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaRenderer, ANameSetInALoopEndsWithIt) {
  expect_renders({
      {"{% set n = 0 %}{% for i in [1, 2] %}{% set n = i %}{% endfor %}{{ n }}", "0"},
      {"{% for i in [1] %}{% endfor %}[{{ i }}]", "[]"},
  });
}

TEST(JinjaRenderer, MacrosHaveDefaultsAndCallers) {
  expect_renders({
      {"{% macro m(a, b='z') %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}", "1z12"},
      {"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{% endcall %}", "<x>"},
  });
}

TEST(JinjaRenderer, BreakAndContinueLeaveTheLoop) {
  expect_renders({
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break "
       "%}{% endif %}{{ i }}{% endfor %}",
       "023"},
  });
}

TEST(JinjaRenderer, FilterBlocksChangeTheirText) {
  expect_renders({
      {"{% filter upper %}a{{ x }}b{% endfilter %}", "A3B"},
  });
}

TEST(JinjaRenderer, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ raise_exception('stop here') }}", "stop here"},
  });
}

}  // namespace
}  // namespace phx::jinja
