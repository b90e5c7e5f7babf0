#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaParser, StatementsNestAndElseBelongsToItsLoop) {
  expect_renders({
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% if false %}a{% elif x == 3 %}b{% else %}c{% endif %}", "b"},
      {"{% for a, b in [(1, 2), (3, 4)] %}{{ a + b }} {% endfor %}", "3 7 "},
      {"{% for i in [1,2,3] if i != 2 %}{{ i }}{% endfor %}", "13"},
  });
}

TEST(JinjaParser, SetTakesValuesTuplesAndBlocks) {
  expect_renders({
      {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
      {"{% set c %}x{{ 1 }}{% endset %}{{ c }}", "x1"},
      {"{% set c | upper %}abc{% endset %}{{ c }}", "ABC"},
  });
}

TEST(JinjaParser, FailsWithWhatIsWrong) {
  expect_faults({
      {"{% if x %}", "line 1"},
      {"{% nonsense %}", "nonsense"},
  });
}

}  // namespace
}  // namespace phx::jinja
