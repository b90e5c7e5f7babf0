// The "pattern" of Split and Replace: {"String": ".."} or {"Regex": ".."}.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "phalanx/text/tokenizer/regex.h"

namespace phx {

class TextPattern {
 public:
  explicit TextPattern(const nlohmann::json& json);
  explicit TextPattern(Regex regex) : regex_(std::move(regex)) {}

  // The next match at `from` or after it.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  // Calls each(begin, end) for the matches from left to right. An empty match right after another
  // match is passed over, and the search goes on a character further. An empty text has no match.
  template <class Each>
  void for_each_match(std::string_view text, Each&& each) const {
    size_t from = 0, last_end = std::string_view::npos, begin, end;
    while (!text.empty() && from <= text.size() && find(text, from, begin, end)) {
      if (begin == end) {
        const size_t next = end + length_at(text, end);
        if (end != last_end) each(begin, end);
        last_end = end;
        from = next;
      } else {
        each(begin, end);
        from = last_end = end;
      }
    }
  }

  std::string replace(std::string_view text, std::string_view content) const;

  // The regular expression's text, none for a plain string.
  std::optional<std::string> regex_text() const {
    if (!regex_) return std::nullopt;
    return regex_->pattern();
  }

 private:
  static size_t length_at(std::string_view text, size_t at);

  std::string plain_;
  std::optional<Regex> regex_;
};

}  // namespace phx
