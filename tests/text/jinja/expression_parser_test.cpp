#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaExpressionParser, OperatorsBindAsInJinja2) {
  expect_renders({
      {"{{ 2 + 3 * 4 }}|{{ (2 + 3) * 4 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}|{{ 1 ~ 2 * 3 }}|{{ 10 - "
       "4 - 3 }}",
       "14|20|64|4|16|3"},
      {"{{ not true and false }}|{{ true or false and false }}|{{ 1 if 0 else 2 if 0 else 3 }}",
       "False|True|3"},
      {"{{ 'a' if 1 < 2 and 3 != 4 else 'b' }}", "a"},
  });
}

TEST(JinjaExpressionParser, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 1 + }}", "unexpected"},
      {"{{ (1 }}", ")"},
  });
}

}  // namespace
}  // namespace phx::jinja
