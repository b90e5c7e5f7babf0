#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaPredicates, TellKindsApart) {
  expect_renders({
      {"{% for v in [1, 1.5, 'a', [1], (1,), {'a': 1}, none, true] %}{{ 1 if v is number else 0 "
       "}}{{ 1 if v is string else 0 }}{{ 1 if v is sequence else 0 }}{{ 1 if v is mapping else 0 "
       "}}{{ 1 if v is iterable else 0 }}{{ 1 if v is none else 0 }}{{ 1 if v is boolean else 0 "
       "}}{{ 1 if v is integer else 0 }}{{ 1 if v is float else 0 }};{% endfor %}",
       "100000010;100000001;011010000;001010000;001010000;001110000;000001000;100000100;"},
  });
}

TEST(JinjaPredicates, AskForProperties) {
  expect_renders({
      {"{{ 4 is even }}|{{ 4 is odd }}|{{ 9 is divisibleby 3 }}|{{ 'ab' is lower }}|{{ 'AB' is "
       "upper }}|{{ x is defined }}|{{ y is undefined }}",
       "True|False|True|True|True|True|True"},
      {"{{ 3 is eq 3 }}|{{ 3 is gt 4 }}|{{ 2 is in [1, 2] }}|{{ none is sameas none }}|{{ 1 is not "
       "none }}",
       "True|False|True|True|True"},
  });
}

}  // namespace
}  // namespace phx::jinja
