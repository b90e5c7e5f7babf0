// Templates and the texts that they give. The texts in these tests are those of Jinja2 3.1.6, set
// up as transformers does.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/jinja_template.h"

namespace phx::jinja {

inline const Value& test_variables() {
  static const Value values = parse_json(R"({
      "x": 3, "names": ["b", "a", "C"], "s": "Straße", "none": null, "d": {"k": 1, "m": [1, 2]},
      "people": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 24}, {"name": "Cyd", "age": 36}]})");
  return values;
}

using TextPairs = std::vector<std::pair<std::string, std::string>>;

inline void expect_renders(const TextPairs& cases) {  // template, text
  for (const auto& [source, text] : cases) {
    try {
      EXPECT_EQ(Template(source, "test").render(test_variables()).text, text) << source;
    } catch (const Error& error) {
      ADD_FAILURE() << source << ": " << error.what();
    }
  }
}

inline void expect_faults(const TextPairs& cases) {  // template, a part of the error
  for (const auto& [source, words] : cases) {
    try {
      ADD_FAILURE() << source << " gives "
                    << Template(source, "test").render(test_variables()).text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("test: line 1: "));
      EXPECT_THAT(error.what(), ::testing::HasSubstr(words)) << source;
    }
  }
}

}  // namespace phx::jinja
