#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaMethods, OfDictsAndLists) {
  expect_renders({
      {"{{ d.get('k') }}|{{ d.get('z', 5) }}|{{ d.get('z') }}|{{ d.keys()|list }}|{{ "
       "d.items()|list }}",
       "1|5|None|['k', 'm']|[('k', 1), ('m', [1, 2])]"},
      {"{{ ['a', 'b', 'a'].count('a') }}|{{ ['a', 'b'].index('b') }}", "2|1"},
  });
}

TEST(JinjaMethods, FunctionsOfTheEnvironment) {
  expect_renders({
      {"{{ range(3)|list }}|{{ range(1, 7, 2)|list }}|{{ dict(a=1) }}",
       "[0, 1, 2]|[1, 3, 5]|{'a': 1}"},
      {"{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor "
       "%}{{ ns.n }}",
       "6"},
  });
}

}  // namespace
}  // namespace phx::jinja
