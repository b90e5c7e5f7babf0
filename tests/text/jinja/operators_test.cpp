#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaOperators, ArithmeticIsPythons) {
  expect_renders({
      {"{{ 7 // 2 }}|{{ -7 // 2 }}|{{ 7 % 3 }}|{{ -7 % 3 }}|{{ 7 / 2 }}|{{ 2 ** 10 }}",
       "3|-4|1|2|3.5|1024"},
      {"{{ 1 + 2.5 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 2 ** -1 }}", "3.5|3.0|0.5|0.5"},
      {"{{ true + 1 }}", "2"},
  });
}

TEST(JinjaOperators, TextsAndListsAreAddedAndRepeated) {
  expect_renders({
      {"{{ 'a' + 'b' }}|{{ 'ab' * 3 }}|{{ [1] + [2, 3] }}|{{ (1,) * 2 }}",
       "ab|ababab|[1, 2, 3]|(1, 1)"},
      {"{{ 'a' ~ 1 ~ none }}", "a1None"},
  });
}

TEST(JinjaOperators, ComparisonsMayBeChainedAndNegated) {
  expect_renders({
      {"{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ not 1 == 2 }}", "True|False|True"},
      {"{{ 2 in [1, 2] }}|{{ \"tra\" in s }}|{{ \"k\" in d }}|{{ 5 not in [1] }}",
       "True|True|True|True"},
  });
}

TEST(JinjaOperators, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 1 + 'a' }}", "'+' does not go between int and str"},
      {"{{ 1 // 0 }}", "zero"},
      {"{{ nothing + 1 }}", "nothing"},
  });
}

}  // namespace
}  // namespace phx::jinja
