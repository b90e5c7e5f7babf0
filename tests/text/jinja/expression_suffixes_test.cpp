#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaExpressionSuffixes, FollowAValueFromLeftToRight) {
  expect_renders({
      {"{{ people[0].name.upper()[1:] }}|{{ 'a,b'.split(',')[1] }}|{{ ' x '|trim|upper }}|{{ 3 is "
       "odd and 4 is even }}",
       "DA|b|X|True"},
      {"{{ -1|abs }}|{{ (-1)|abs }}|{{ 'a' ~ 'b'|upper }}|{{ 5 is divisibleby(5) }}|{{ not 3 is "
       "even }}",
       "1|1|aB|True|True"},
  });
}

TEST(JinjaExpressionSuffixes, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ x|nonsense }}", "the filter 'nonsense' is not supported"},
      {"{{ x is nonsense }}", "the test 'nonsense' is not supported"},
  });
}

}  // namespace
}  // namespace phx::jinja
