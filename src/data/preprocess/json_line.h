// Texts out of a line of JSON. A line is checked as a whole: what Python's json refuses, this does.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

class JsonLineParser {
 public:
  JsonLineParser();
  ~JsonLineParser();
  JsonLineParser(const JsonLineParser&) = delete;
  JsonLineParser& operator=(const JsonLineParser&) = delete;

  // The strings of `keys`, in their order, valid until the next call. `line` has kPadding readable
  // bytes behind it (LineBlock). Throws an Error that says what is wrong with the line.
  std::span<const std::string_view> parse(std::string_view line, std::span<const std::string> keys);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
  std::vector<std::string_view> texts_;
};

}  // namespace phx
