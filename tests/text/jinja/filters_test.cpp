#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaFilters, ChangeTexts) {
  expect_renders({
      {"{{ 'hello wORLD'|title }}|{{ 'hELLO'|capitalize }}|{{ 'aB'|upper }}|{{ 'aB'|lower }}|{{ '  "
       "x '|trim }}|{{ 'xxaxx'|trim('x') }}",
       "Hello World|Hello|AB|ab|x|a"},
      {"{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}", "a\n  b\n\n  c|  a\n  b"},
      {"{{ 'The quick brown fox'|truncate(12) }}|{{ 'The quick brown fox'|truncate(12, true, '..', "
       "0) }}",
       "The...|The quick .."},
      {"{{ 'one two  three'|wordcount }}|{{ '<a & b>'|e }}", "3|&lt;a &amp; b&gt;"},
  });
}

TEST(JinjaFilters, MakeNumbers) {
  expect_renders({
      {"{{ '42'|int }}|{{ 'x'|int(7) }}|{{ 3.9|int }}|{{ '1.5'|float }}|{{ -3|abs }}",
       "42|7|3|1.5|3"},
      {"{{ 2.5|round }}|{{ 2.567|round(2) }}|{{ 2.1|round(0, \"ceil\") }}|{{ "
       "2.9|round(method=\"floor\") }}",
       "2.0|2.57|3.0|2.0"},
  });
}

TEST(JinjaFilters, GiveDefaults) {
  expect_renders({
      {"{{ nothing|default('x') }}|{{ ''|default('x') }}|{{ ''|default('x', true) }}|{{ "
       "none|d('x') }}",
       "x||x|None"},
  });
}

TEST(JinjaFilters, FormatAndQuote) {
  expect_renders({
      {"{{ '%s is %d'|format('x', 3) }}|{{ [1, 'ä', none, true, 1.5]|tojson }}",
       "x is 3|[1, \"ä\", null, true, 1.5]"},
      {"{{ d|tojson(indent=2) }}", "{\n  \"k\": 1,\n  \"m\": [\n    1,\n    2\n  ]\n}"},
      {"{{ people[0]|tojson(sort_keys=true) }}", "{\"age\": 36, \"name\": \"Ada\"}"},
  });
}

TEST(JinjaFilters, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ '1A'|int(0, 16) }}", "a base other than 10 is not supported"},
  });
}

}  // namespace
}  // namespace phx::jinja
