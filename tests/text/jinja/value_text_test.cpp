#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaValueText, PrintsAsPythonDoes) {
  expect_renders({
      {"{{ none }}|{{ true }}|{{ 1.0 }}|{{ 1e22 }}|{{ 0.1 + 0.2 }}|{{ 1e-7 }}",
       "None|True|1.0|1e+22|0.30000000000000004|1e-07"},
      {"{{ ['a', \"it's\", 1.5, none] }}|{{ ('x',) }}|{{ {'k': 'v'} }}",
       "['a', \"it's\", 1.5, None]|('x',)|{'k': 'v'}"},
      {"{{ ['tab\\t', 'ä', '\\\\', '\\x07'] }}", "['tab\\t', 'ä', '\\\\', '\\x07']"},
  });
}

}  // namespace
}  // namespace phx::jinja
