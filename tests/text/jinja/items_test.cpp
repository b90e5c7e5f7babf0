#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaItems, AttributesAndItemsFindTheSame) {
  expect_renders({
      {"{{ d.k }}|{{ d[\"k\"] }}|{{ people[1].name }}|{{ people[-1][\"name\"] }}", "1|1|Bob|Cyd"},
      {"{{ d.m.1 }}", "2"},
      {"{{ s[0] }}|{{ s[-2] }}", "S|ß"},
  });
}

TEST(JinjaItems, SlicesFollowPython) {
  expect_renders({
      {"{{ [1,2,3,4][1:3] }}|{{ [1,2,3,4][::-1] }}|{{ [1,2,3,4][-2:] }}|{{ (1,2,3)[:2] }}",
       "[2, 3]|[4, 3, 2, 1]|[3, 4]|(1, 2)"},
      {"{{ s[1:4] }}|{{ s[::-1] }}|{{ s[::2] }}", "tra|eßartS|Srß"},
      {"{{ range(10)[2:8:3]|list }}", "[2, 5]"},
  });
}

TEST(JinjaItems, WhatIsMissingIsUndefined) {
  expect_renders({
      {"[{{ d.nothing }}][{{ people[9] is undefined }}][{{ s.foo is defined }}]",
       "[][True][False]"},
  });
}

TEST(JinjaItems, ALoopTellsWhereItIs) {
  expect_renders({
      {"{% for n in names %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ "
       "loop.last }}{{ loop.length }} {% endfor %}",
       "103TrueFalse3 212FalseFalse3 321FalseTrue3 "},
      {"{% for n in names %}{{ loop.previtem }}<{{ n }}>{{ loop.nextitem }} {% endfor %}",
       "<b>a b<a>C a<C> "},
  });
}

TEST(JinjaItems, FailsWithWhatIsWrong) {
  expect_faults({
      {"{{ [1][0:1:0] }}", "the step of a slice cannot be 0"},
      {"{{ nothing.x }}", "nothing"},
  });
}

}  // namespace
}  // namespace phx::jinja
