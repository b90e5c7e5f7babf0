#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaTextMethods, SplitAndStrip) {
  expect_renders({
      {"{{ 'a,b,c'.split(',') }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'a,b,c'.rsplit(',', 1) }}|{{ ' a  "
       "b '.split() }}|{{ 'a\nb\r\nc'.splitlines() }}",
       "['a', 'b', 'c']|['a', 'b,c']|['a,b', 'c']|['a', 'b']|['a', 'b', 'c']"},
      {"{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}", "a|a|a"},
  });
}

TEST(JinjaTextMethods, SearchAndReplace) {
  expect_renders({
      {"{{ 'banana'.find('an') }}|{{ 'banana'.rfind('an') }}|{{ 'banana'.count('an') }}|{{ "
       "'banana'.index('n') }}|{{ 'x'.find('y') }}",
       "1|3|2|2|-1"},
      {"{{ 'banana'.startswith('ban') }}|{{ 'banana'.endswith(('x', 'na')) }}|{{ "
       "'banana'.replace('an', 'o', 1) }}",
       "True|True|boana"},
      {"{{ 'straße'.find('e') }}", "5"},
  });
}

TEST(JinjaTextMethods, ChangeAndAskForCases) {
  expect_renders({
      {"{{ 'straße'.upper() }}|{{ 'ÀB'.lower() }}|{{ 'hello world'.title() }}|{{ "
       "'hELLO'.capitalize() }}",
       "STRASSE|àb|Hello World|Hello"},
      {"{{ '12'.isdigit() }}|{{ 'ab'.isalpha() }}|{{ 'a1'.isalnum() }}|{{ ' '.isspace() }}|{{ "
       "'AB'.isupper() }}|{{ 'aB'.islower() }}",
       "True|True|True|True|True|False"},
      {"{{ 'x'.center(5, '*') }}|{{ '7'.zfill(3) }}|{{ 'x'.ljust(3, '.') }}|{{ 'x'.rjust(3, '.') "
       "}}",
       "**x**|007|x..|..x"},
      {"{{ '-'.join(['a', 'b']) }}|{{ 'a-b-c'.partition('-') }}|{{ 'a-b-c'.rpartition('-') }}",
       "a-b|('a', '-', 'b-c')|('a-b', '-', 'c')"},
  });
}

TEST(JinjaTextMethods, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 'aB'.swapcase() }}", "the method str.swapcase is not supported"},
      {"{{ 'a'.index('b') }}", "line 1"},
  });
}

}  // namespace
}  // namespace phx::jinja
