#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaValue, TruthIsPythons) {
  expect_renders({
      {"{% for v in [0, 1, 0.0, '', 'a', [], [0], {}, none, true] %}{{ 1 if v else 0 }}{% endfor "
       "%}",
       "0100101001"},
  });
}

TEST(JinjaValue, LengthsCountCharactersAndItems) {
  expect_renders({
      {"{{ s|length }}|{{ d|length }}|{{ [1,[2]]|length }}|{{ range(2, 9, 3)|length }}", "6|2|2|3"},
  });
}

}  // namespace
}  // namespace phx::jinja
