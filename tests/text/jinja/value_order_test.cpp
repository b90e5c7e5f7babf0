#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaValueOrder, NumbersTextsAndListsHaveAnOrder) {
  expect_renders({
      {"{{ 1 == 1.0 }}|{{ true == 1 }}|{{ 9007199254740993 == 9007199254740992.0 }}",
       "True|True|False"},
      {"{{ 'a' < 'b' }}|{{ 'Z' < 'a' }}|{{ 'ä' > 'z' }}", "True|True|True"},
      {"{{ [1, 2] < [1, 3] }}|{{ [1] < [1, 0] }}|{{ (2,) > (1, 9) }}", "True|True|True"},
  });
}

TEST(JinjaValueOrder, EqualityLooksInside) {
  expect_renders({
      {"{{ {'a': [1]} == {'a': [1]} }}|{{ [1, 2] == (1, 2) }}|{{ none == false }}|{{ '1' == 1 }}",
       "True|False|False|False"},
      {"{{ range(0) == range(3, 3) }}|{{ range(1, 5, 2) == range(1, 4, 2) }}", "True|True"},
  });
}

TEST(JinjaValueOrder, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ 1 < 'a' }}", "do not go between int and str"},
  });
}

}  // namespace
}  // namespace phx::jinja
