// How far a query looks: `left` keys before it and `right` after; -1 is without limit. A causal
// window of w tokens is {w - 1, 0}.
#pragma once

#include <cstdint>
#include <string>

namespace phx {

struct WindowSize {
  int64_t left = -1;
  int64_t right = -1;

  static constexpr const char* kTypeName = "left,right";
  static WindowSize parse(const std::string& text);  // "127,0" or "(127,0)"
  std::string text() const { return std::to_string(left) + "," + std::to_string(right); }

  bool operator==(const WindowSize&) const = default;
};

}  // namespace phx
