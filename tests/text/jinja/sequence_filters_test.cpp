#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaSequenceFilters, TakeFromSequences) {
  expect_renders({
      {"{{ names|first }}|{{ names|last }}|{{ names|length }}|{{ names|join(', ') }}|{{ "
       "names|reverse|list }}|{{ 'abc'|reverse }}",
       "b|C|3|b, a, C|['C', 'a', 'b']|cba"},
  });
}

TEST(JinjaSequenceFilters, SortAndGroup) {
  expect_renders({
      {"{{ names|sort }}|{{ names|sort(case_sensitive=true) }}|{{ names|sort(reverse=true) }}",
       "['a', 'b', 'C']|['C', 'a', 'b']|['C', 'b', 'a']"},
      {"{{ people|sort(attribute='age')|map(attribute='name')|join }}", "BobAdaCyd"},
      {"{% for age, all in people|groupby('age') %}{{ age }}:{{ "
       "all|map(attribute='name')|join(',') }} {% endfor %}",
       "24:Bob 36:Ada,Cyd "},
      {"{{ {'b': 1, 'a': 2}|dictsort }}|{{ {'b': 1, 'a': 2}|dictsort(by='value') }}",
       "[('a', 2), ('b', 1)]|[('b', 1), ('a', 2)]"},
  });
}

TEST(JinjaSequenceFilters, ChooseAndCount) {
  expect_renders({
      {"{{ people|selectattr('age', 'gt', 30)|map(attribute='name')|list }}|{{ "
       "people|rejectattr('age', 'equalto', 36)|map(attribute='name')|list }}",
       "['Ada', 'Cyd']|['Bob']"},
      {"{{ [1,2,3,4]|select('even')|list }}|{{ [1,2,3,4]|reject('odd')|sum }}", "[2, 4]|6"},
      {"{{ [1,1,2]|unique|list }}|{{ names|min }}|{{ names|max }}|{{ people|sum(attribute='age') "
       "}}",
       "[1, 2]|a|C|96"},
      {"{{ [1,2,3]|batch(2, 0)|list }}|{{ ['a','b']|map('upper')|list }}",
       "[[1, 2], [3, 0]]|['A', 'B']"},
  });
}

}  // namespace
}  // namespace phx::jinja
