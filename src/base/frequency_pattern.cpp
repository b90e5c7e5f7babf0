#include "phalanx/base/frequency_pattern.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr size_t kMaxEntries = 1 << 16;  // more layers than any model; bounds "[1]*999999999"
constexpr int kMaxDepth = 32;            // bounds "((((((..."

// sum := product ('+' product)*    product := atom ('*' atom)*
// atom := integer | '(' sum ')' | '[' [sum (',' sum)* [',']] ']'
class Evaluator {
 public:
  explicit Evaluator(std::string_view text) : text_(text) {}

  struct Value {
    bool is_list = false;
    int64_t number = 0;
    std::vector<int64_t> list;
  };

  Value run() {
    Value value = sum();
    skip_spaces();
    if (at_ != text_.size()) fail("nothing more");
    return value;
  }

 private:
  Value sum() {
    Value left = product();
    while (take('+')) {
      Value right = product();
      if (left.is_list != right.is_list) fail("a list on both sides of +, or a number on both");
      left.number = checked(left.number + right.number);
      left.list.insert(left.list.end(), right.list.begin(), right.list.end());
      check_size(left.list.size());
    }
    return left;
  }

  Value product() {
    Value left = atom();
    while (take('*')) {
      Value right = atom();
      if (left.is_list && right.is_list) fail("a number on one side of *");
      if (!left.is_list && !right.is_list) {
        left.number = checked(left.number * right.number);
        continue;
      }
      if (right.is_list) std::swap(left, right);
      left = repeat(left.list, right.number);
    }
    return left;
  }

  Value repeat(const std::vector<int64_t>& list, int64_t times) {
    Value value{.is_list = true, .number = 0, .list = {}};
    for (int64_t i = 0; i < times && !list.empty(); ++i) {
      check_size(value.list.size() + list.size());
      value.list.insert(value.list.end(), list.begin(), list.end());
    }
    return value;
  }

  Value atom() {
    if (++depth_ > kMaxDepth) fail("fewer nested parentheses");
    Value value;
    if (take('(')) {
      value = sum();
      if (!take(')')) fail("')'");
    } else if (take('[')) {
      value.is_list = true;
      while (!take(']')) {
        const Value entry = sum();
        if (entry.is_list) fail("a number in the list, not a list");
        value.list.push_back(entry.number);
        check_size(value.list.size());
        if (take(',')) continue;
        if (!take(']')) fail("',' or ']'");
        break;
      }
    } else {
      value.number = integer();
    }
    --depth_;
    return value;
  }

  int64_t integer() {
    skip_spaces();
    int64_t number = 0;
    const char* begin = text_.data() + at_;
    const auto [end, status] = std::from_chars(begin, text_.data() + text_.size(), number);
    if (status != std::errc{}) fail("a number, '[' or '('");
    at_ += static_cast<size_t>(end - begin);
    return checked(number);
  }

  bool take(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void skip_spaces() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }

  // Both factors are this small, so neither sums nor products of two can overflow.
  int64_t checked(int64_t number) {
    if (number < -1'000'000 || number > 1'000'000) fail("a smaller number");
    return number;
  }

  void check_size(size_t size) {
    if (size > kMaxEntries) fail(str_cat("at most ", kMaxEntries, " entries"));
  }

  [[noreturn]] void fail(const std::string& expected) {
    throw_error(str_cat("is not a pattern: expected ", expected, " at character ",
                        std::min(at_, text_.size()) + 1));
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

FrequencyPattern FrequencyPattern::parse(std::string_view text) {
  Evaluator::Value value = Evaluator(text).run();
  PHX_CHECK(value.is_list || value.number > 0, "is not a pattern: every N-th layer needs N >= 1");
  FrequencyPattern pattern;
  pattern.every = value.is_list ? 0 : value.number;
  pattern.list = std::move(value.list);
  pattern.written = text;
  return pattern;
}

FrequencyPattern FrequencyPattern::every_nth(int64_t n) { return parse(str_cat(n)); }

FrequencyPattern FrequencyPattern::of(std::vector<int64_t> list) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += str_cat(i == 0 ? "" : ",", list[i]);
  return parse(text + "]");
}

}  // namespace phx
