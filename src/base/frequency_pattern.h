// Which layers do a thing: "every N-th", or one number a layer. Megatron writes the latter as a
// Python list expression, such as "([0]*3+[1]*1)*3"; a small evaluator of our own reads exactly
// that much of Python (integers, lists, +, *, parentheses) and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

struct FrequencyPattern {
  int64_t every = 0;          // N; 0 when `list` is used
  std::vector<int64_t> list;  // one entry a layer
  std::string written;        // the text it was read from

  static constexpr const char* kTypeName = "pattern";

  // Throws Error with the position where the text stops making sense; its wording goes on after the
  // value ("--no-rope-freq [1 is not a pattern: ...").
  static FrequencyPattern parse(std::string_view text);
  static FrequencyPattern every_nth(int64_t n);
  static FrequencyPattern of(std::vector<int64_t> list);

  const std::string& text() const { return written; }
  bool is_list() const { return every == 0; }
  bool operator==(const FrequencyPattern& other) const {
    return every == other.every && list == other.list;
  }
};

}  // namespace phx
