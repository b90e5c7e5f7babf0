#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaValueElements, LoopsSeeCharactersKeysAndNumbers) {
  expect_renders({
      {"{% for c in 'aäé' %}<{{ c }}>{% endfor %}", "<a><ä><é>"},
      {"{% for k in d %}{{ k }};{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor "
       "%}",
       "k;m;k=1;m=[1, 2];"},
      {"{% for i in range(5, 0, -2) %}{{ i }} {% endfor %}{% for v in d.values() %}{{ v }}{% "
       "endfor %}",
       "5 3 1 1[1, 2]"},
  });
}

TEST(JinjaValueElements, AnUndefinedNameHasNoElements) {
  expect_renders({
      {"[{% for a in nothing %}x{% endfor %}]", "[]"},
  });
}

TEST(JinjaValueElements, FailsWithWhatIsWrong) {
  expect_faults({
      {"{% for i in 5 %}{% endfor %}", "a int cannot be iterated"},
  });
}

}  // namespace
}  // namespace phx::jinja
