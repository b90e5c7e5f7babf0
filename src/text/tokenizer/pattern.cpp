#include "phalanx/text/tokenizer/pattern.h"

#include "phalanx/base/error.h"
#include "phalanx/base/json.h"
#include "phalanx/text/tokenizer/unicode.h"

namespace phx {

TextPattern::TextPattern(const nlohmann::json& json) {
  PHX_CHECK(json.is_object() && json.size() == 1 && json.begin().value().is_string(),
            "a pattern of a tokenizer should be {\"String\": ..} or {\"Regex\": ..}, but is ",
            json_text(json));
  const std::string text = json.begin().value().get<std::string>();
  if (json.begin().key() == "String") {
    PHX_CHECK(!text.empty(), "a pattern of a tokenizer is an empty text");
    plain_ = text;
  } else {
    PHX_CHECK(json.begin().key() == "Regex", "the pattern ", json.begin().key(),
              " is not supported");
    regex_.emplace(text);
  }
}

bool TextPattern::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  if (regex_) return regex_->find(text, from, begin, end);
  begin = text.find(plain_, from);
  if (begin == std::string_view::npos) return false;
  end = begin + plain_.size();
  return true;
}

std::string TextPattern::replace(std::string_view text, std::string_view content) const {
  std::string out;
  size_t done = 0;
  for_each_match(text, [&](size_t begin, size_t end) {
    out.append(text, done, begin - done);
    out += content;
    done = end;
  });
  out.append(text, done, text.size() - done);
  return out;
}

size_t TextPattern::length_at(std::string_view text, size_t at) {
  return at < text.size() ? code_length(text[at]) : 1;
}

}  // namespace phx
