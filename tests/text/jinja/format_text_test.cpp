#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaFormatText, PercentFormatsAsPython) {
  expect_renders({
      {"{{ '%5d|%-5d|%05d|%+d' % (42, 42, 42, 42) }}", "   42|42   |00042|+42"},
      {"{{ '%.2f|%8.3f|%e|%g' % (3.14159, 2.5, 12345.678, 0.0001) }}",
       "3.14|   2.500|1.234568e+04|0.0001"},
      {"{{ '%s|%r|%%|%x|%o' % ('a', 'a', 255, 8) }}", "a|'a'|%|ff|10"},
  });
}

TEST(JinjaFormatText, BracesFormatAsPython) {
  expect_renders({
      {"{{ '{} {}'.format(1, 'b') }}|{{ '{1}{0}'.format('a', 'b') }}|{{ '{n}'.format(n='x') }}",
       "1 b|ba|x"},
  });
}

TEST(JinjaFormatText, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ '%c' % 'z' }}", "%c in a format is not supported"},
      {"{{ '{:.2f}'.format(1.5) }}", "in str.format is not supported"},
  });
}

}  // namespace
}  // namespace phx::jinja
