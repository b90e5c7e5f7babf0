#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaBound, ArgumentsAreTakenByPositionAndByName) {
  expect_renders({
      {"{{ 'aaa'.replace('a', 'b', 2) }}|{{ 'aaa'|replace('a', 'b', count=1) }}", "bba|baa"},
      {"{{ 'x'|center(width=5) }}|{{ '3.7'|int(default=9) }}", "  x  |3"},
  });
}

TEST(JinjaBound, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 'a'.replace('a') }}", "needs its argument new"},
      {"{{ 'a'|replace('a', 'b', old='c') }}", "got its argument old twice"},
      {"{{ 'a'.replace('a', 'b', 1, 2) }}", "arguments at most"},
      {"{{ 'a'|center(height=3) }}", "has no argument called height"},
  });
}

}  // namespace
}  // namespace phx::jinja
