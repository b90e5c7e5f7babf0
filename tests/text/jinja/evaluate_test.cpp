#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaEvaluate, AndAndOrGiveOneOfTheirValues) {
  expect_renders({
      {"{{ 0 or 'x' }}|{{ 1 and 'y' }}|{{ '' or none }}|{{ 'a' if x > 2 else 'b' }}|[{{ 'a' if "
       "false }}]",
       "x|y|None|a|[]"},
  });
}

TEST(JinjaEvaluate, StarsSpreadArguments) {
  expect_renders({
      {"{{ '{}-{}'.format(*[1, 2]) }}|{{ dict(**{'a': 1}) }}", "1-2|{'a': 1}"},
  });
}

TEST(JinjaEvaluate, DisplaysHoldWhatTheirPartsAre) {
  expect_renders({
      {"{{ [x, x + 1] }}|{{ {'a': x, 'b': [x]} }}|{{ (x, 'z') }}|{{ () }}",
       "[3, 4]|{'a': 3, 'b': [3]}|(3, 'z')|()"},
  });
}

}  // namespace
}  // namespace phx::jinja
