#include <gtest/gtest.h>

#include "text/jinja/rendered.h"

namespace phx::jinja {
namespace {

TEST(JinjaJsonValue, WritesJsonAsPythonDoes) {
  expect_renders({
      {"{{ {'a': [1, 2.5, none, true, 'ä\"']}|tojson }}|{{ 'ä'|tojson(ensure_ascii=true) }}",
       "{\"a\": [1, 2.5, null, true, \"ä\\\"\"]}|\"\\u00e4\""},
      {"{{ [1, {\"a\": []}]|tojson(indent=2) }}|{{ {\"b\": 1, \"a\": 2}|tojson(separators=(\",\", "
       "\":\"), sort_keys=true) }}",
       "[\n  1,\n  {\n    \"a\": []\n  }\n]|{\"a\":2,\"b\":1}"},
  });
}

}  // namespace
}  // namespace phx::jinja
