#include "phalanx/parallel/pipeline/layout_string.h"

#include <cctype>
#include <string_view>

#include "phalanx/base/error.h"

namespace phx {
namespace {

constexpr std::string_view kTokens = "EtmL|";
// Far above any model; it only keeps "t*1000000000" from filling the memory.
constexpr size_t kMostTokens = 1'000'000;

class LayoutParser {
 public:
  explicit LayoutParser(const std::string& text) : text_(text) {}

  std::string parse() {
    const std::string tokens = sequence();
    check(at_ == text_.size(), "this ')' closes nothing");
    return tokens;
  }

 private:
  std::string sequence() {
    std::string tokens;
    for (skip(); at_ < text_.size() && text_[at_] != ')'; skip()) {
      const std::string item = this->item();
      const int times = repeats();
      check(tokens.size() + item.size() * times <= kMostTokens, "the layout becomes too long");
      for (int i = 0; i < times; ++i) tokens += item;
    }
    return tokens;
  }

  std::string item() {
    if (text_[at_] != '(') {
      check(kTokens.find(text_[at_]) != kTokens.npos,
            "a stage is made of E, t, m and L, with | between stages, (..) for groups and *n for "
            "repeats");
      return std::string(1, text_[at_++]);
    }
    const size_t open = at_++;
    const std::string group = sequence();
    if (at_ == text_.size()) at_ = open, check(false, "this '(' is never closed");
    ++at_;
    return group;
  }

  int repeats() {
    skip();
    if (at_ == text_.size() || text_[at_] != '*') return 1;
    ++at_;
    skip();
    size_t times = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_)
      if (times <= kMostTokens) times = 10 * times + (text_[at_] - '0');
    check(times >= 1, "a number of repeats, 1 or more, should stand after '*'");
    check(times <= kMostTokens, "the layout becomes too long");
    return static_cast<int>(times);
  }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ' ')) ++at_;
  }

  void check(bool condition, const char* rule) const {
    PHX_CHECK(condition, "--pipeline-model-parallel-layout \"", text_, "\", at ",
              at_ < text_.size() ? str_cat("'", text_[at_], "' (character ", at_ + 1, ")")
                                 : std::string("its end"),
              ": ", rule);
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> parse_layout(const std::string& layout) {
  std::vector<std::string> stages(1);
  for (const char token : LayoutParser(layout).parse()) {
    if (token == '|') {
      stages.emplace_back();
    } else {
      stages.back() += token;
    }
  }
  return stages;
}

}  // namespace phx
