// The methods of strings.
#include <algorithm>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

std::string replaced(Context& context, std::string_view source, std::string_view old,
                     std::string_view by, int64_t count) {
  std::string out;
  const auto more = [&] { return count < 0 || count-- > 0; };
  const auto add = [&](std::string_view piece) {
    context.budget.spend_bytes(piece.size());
    out += piece;
  };
  if (old.empty()) {  // Python puts the new text around every character
    for (const std::string_view character : characters(source)) {
      if (more()) add(by);
      add(character);
    }
    if (more()) add(by);
    return out;
  }
  size_t at = 0;
  for (size_t found; (found = source.find(old, at)) != std::string_view::npos && more();
       at = found + old.size()) {
    add(source.substr(at, found - at));
    add(by);
  }
  add(source.substr(at));
  return out;
}

std::string joined(Context& context, std::string_view separator, const Values& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string piece = to_text(items[i], context.budget);
    context.budget.spend_bytes(separator.size() + piece.size());
    if (i > 0) out += separator;
    out += piece;
  }
  return out;
}

std::string escaped(std::string_view source) {
  std::string out;
  for (const char c : source) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

namespace {

Value list_of(Context& context, const std::vector<std::string_view>& pieces) {
  Values items;
  for (const std::string_view piece : pieces) {
    context.budget.spend_bytes(piece.size());
    items.push_back(text(std::string(piece)));
  }
  return list(std::move(items));
}

// Words up to the limit, and the rest as one, from the left or from the right.
std::vector<std::string_view> limited_words(std::string_view source, int64_t limit, bool right) {
  const std::vector<std::string_view> words = split_words(source);
  if (limit < 0 || int64_t(words.size()) <= limit) return words;
  const auto end_of = [&](size_t i) { return words[i].data() + words[i].size(); };
  if (right) {
    const size_t whole = words.size() - size_t(limit) - 1;
    std::vector<std::string_view> pieces{source.substr(0, size_t(end_of(whole) - source.data()))};
    pieces.insert(pieces.end(), words.begin() + int64_t(whole) + 1, words.end());
    return pieces;
  }
  std::vector<std::string_view> pieces(words.begin(), words.begin() + limit);
  pieces.push_back(source.substr(size_t(words[size_t(limit)].data() - source.data())));
  return pieces;
}

std::vector<std::string_view> split_at(std::string_view source, std::string_view mark,
                                       int64_t limit, bool right) {
  if (mark.empty()) fault("split: the separator is empty");
  std::vector<std::string_view> pieces;
  while (limit < 0 || limit-- > 0) {
    const size_t found = right ? source.rfind(mark) : source.find(mark);
    if (found == std::string_view::npos) break;
    if (right) {
      pieces.push_back(source.substr(found + mark.size()));
      source = source.substr(0, found);
    } else {
      pieces.push_back(source.substr(0, found));
      source.remove_prefix(found + mark.size());
    }
  }
  pieces.push_back(source);
  if (right) std::ranges::reverse(pieces);
  return pieces;
}

Value split(Context& context, const std::string& source, const Call& call, bool right) {
  const Bound bound(right ? "str.rsplit" : "str.split", call, {"sep", "maxsplit"});
  const int64_t limit = bound.integer(1, -1);
  context.budget.spend_bytes(source.size());
  if (bound.is_none(0)) return list_of(context, limited_words(source, limit, right));
  return list_of(context, split_at(source, bound.text(0), limit, right));
}

// The part of the text between the bounds that find, count and startswith take.
struct Window {
  std::string_view text;
  int64_t first = 0;     // its first character in the whole
  bool possible = true;  // start is not behind the end
};

Window window(std::string_view source, const Bound& bound, size_t start_parameter) {
  const int64_t size = length_of(source);
  const auto place = [&](size_t parameter, int64_t otherwise) {
    const int64_t at = bound.integer(parameter, otherwise);
    return at < 0 ? std::max<int64_t>(0, at + size) : at;
  };
  const int64_t start = place(start_parameter, 0),
                end = std::min(size, place(start_parameter + 1, size));
  if (start > end) return {.text = {}, .first = start, .possible = false};
  return {.text = slice_of(source, start, end), .first = start};
}

int64_t find_in(const Window& window, std::string_view part, bool right) {
  if (!window.possible) return -1;
  const size_t found = right ? window.text.rfind(part) : window.text.find(part);
  if (found == std::string_view::npos) return -1;
  return window.first + length_of(window.text.substr(0, found));
}

Value find_method_call(const std::string& source, const std::string& name, const Call& call) {
  const Bound bound("str." + name, call, {"sub", "start", "end"});
  const int64_t found =
      find_in(window(source, bound, 1), bound.text(0), name == "rfind" || name == "rindex");
  if (found < 0 && name.ends_with("index")) fault("str." + name + ": the text does not hold it");
  return Value::of(found);
}

Value count(const std::string& source, const Call& call) {
  const Bound bound("str.count", call, {"sub", "start", "end"});
  const Window where = window(source, bound, 1);
  const std::string& part = bound.text(0);
  if (!where.possible) return Value::of(int64_t{0});
  if (part.empty()) return Value::of(length_of(where.text) + 1);
  int64_t found = 0;
  for (size_t at = 0; (at = where.text.find(part, at)) != std::string_view::npos; at += part.size())
    ++found;
  return Value::of(found);
}

Value affix(const std::string& source, const std::string& name, const Call& call) {
  const Bound bound("str." + name, call, {"affix", "start", "end"});
  const Window where = window(source, bound, 1);
  const auto matches = [&](const Value& affix) {
    if (!affix.is(Kind::text))
      fault(str_cat("str.", name, " needs a str or a tuple of them, not ", type_name(affix)));
    if (!where.possible) return false;
    return name == "startswith" ? where.text.starts_with(affix.text())
                                : where.text.ends_with(affix.text());
  };
  const Value& asked = bound.at(0);
  if (!asked.is(Kind::tuple)) return Value::of(matches(asked));
  return Value::of(std::ranges::any_of(asked.get<List>().items, matches));
}

Value stripped(const Value& self, const std::string& name, const Call& call) {
  const Bound bound("str." + name, call, {"chars"});
  const Side side = name == "lstrip" ? Side::left : name == "rstrip" ? Side::right : Side::both;
  const std::string_view kept =
      bound.is_none(0) ? strip(self.text(), side) : strip(self.text(), bound.text(0), side);
  return text(std::string(kept), self.get<Text>().markup);
}

Value padded(Context& context, const std::string& source, const std::string& name,
             const Call& call) {
  const Bound bound("str." + name, call, {"width", "fillchar"});
  const std::string fill = bound.find(1) != nullptr ? bound.text(1) : " ";
  if (length_of(fill) != 1) fault("str." + name + ": fillchar should be one character");
  const int64_t missing = std::max<int64_t>(0, bound.integer(0) - length_of(source));
  const int64_t width = bound.integer(0);
  int64_t left = 0;
  if (name == "rjust") left = missing;
  if (name == "center") left = missing / 2 + (missing & width & 1);  // CPython's choice
  if (missing > (int64_t{1} << 40)) fault("str." + name + ": the width is too large");
  context.budget.spend_bytes(source.size() + size_t(missing) * fill.size());
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += source;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return text(std::move(out));
}

Value zero_filled(Context& context, const std::string& source, const Call& call) {
  const Bound bound("str.zfill", call, {"width"});
  const int64_t missing = bound.integer(0) - length_of(source);
  if (missing <= 0) return text(source);
  if (missing > (int64_t{1} << 40)) fault("str.zfill: the width is too large");
  context.budget.spend_bytes(source.size() + size_t(missing));
  const bool has_sign = source.starts_with('+') || source.starts_with('-');
  return text(source.substr(0, has_sign ? 1 : 0) + std::string(size_t(missing), '0') +
              source.substr(has_sign ? 1 : 0));
}

Value join(Context& context, const Value& self, const Call& call) {
  const Bound bound("str.join", call, {"iterable"});
  Values items = elements(bound.at(0), context.budget);
  const bool markup = self.get<Text>().markup;
  for (Value& item : items) {
    if (!item.is(Kind::text))
      fault(str_cat("str.join needs strings, and there is a ", type_name(item)));
    if (markup && !item.get<Text>().markup) item = text(escaped(item.text()));
  }
  return text(joined(context, self.text(), items), markup);
}

Value partition(Context& context, const std::string& source, const std::string& name,
                const Call& call) {
  const Bound bound("str." + name, call, {"sep"});
  const std::string& mark = bound.text(0);
  if (mark.empty()) fault("str." + name + ": the separator is empty");
  context.budget.spend_bytes(source.size());
  const bool right = name == "rpartition";
  const size_t found = right ? source.rfind(mark) : source.find(mark);
  if (found == std::string::npos)
    return right ? tuple({text(""), text(""), text(source)})
                 : tuple({text(source), text(""), text("")});
  return tuple(
      {text(source.substr(0, found)), text(mark), text(source.substr(found + mark.size()))});
}

Value without_affix(const std::string& source, const std::string& name, const Call& call) {
  const Bound bound("str." + name, call, {"affix"});
  const std::string& part = bound.text(0);
  if (name == "removeprefix")
    return text(source.starts_with(part) ? source.substr(part.size()) : source);
  return text(!part.empty() && source.ends_with(part)
                  ? source.substr(0, source.size() - part.size())
                  : source);
}

// isdigit and its kin differ on characters like superscripts only, which are refused.
bool is_numeric(char32_t c) {
  if (c >= 0x80 && !is_digit(c) && !is_letter(c) && !is_space(c))
    fault("digits beyond decimal ones are not told from other characters here");
  return is_digit(c);
}

std::optional<bool> character_test(const std::string& source, const std::string& name) {
  const auto all = [&](auto&& holds) {
    return !source.empty() && std::ranges::all_of(characters(source), [&](std::string_view c) {
      return holds(code_point(c));
    });
  };
  if (name == "isspace") return all(is_space);
  if (name == "isalpha") return all(is_letter);
  if (name == "isdecimal") return all(is_digit);
  if (name == "isdigit" || name == "isnumeric") return all(is_numeric);
  if (name == "isalnum") return all([](char32_t c) { return is_letter(c) || is_numeric(c); });
  if (name == "isascii") return is_ascii(source);
  if (name != "isupper" && name != "islower") return std::nullopt;
  bool cased = false;
  for (const std::string_view character : characters(source)) {
    const char32_t c = code_point(character);
    if (name == "isupper" ? is_cased_lower(c) : is_cased_upper(c)) return false;
    cased = cased || is_cased_upper(c) || is_cased_lower(c);
  }
  return cased;
}

Value with_case(const Value& self, const std::string& name, const Call& call) {
  const Bound bound("str." + name, call, {});
  const std::string& source = self.text();
  return text(name == "upper"        ? upper(source)
              : name == "lower"      ? lower(source)
              : name == "capitalize" ? capitalize(source)
                                     : title(source),
              self.get<Text>().markup);
}

}  // namespace

Value call_text_method(Context& context, const Value& self, const std::string& name,
                       const Call& call) {
  const std::string& source = self.text();
  context.budget.spend_bytes(source.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") return stripped(self, name, call);
  if (name == "upper" || name == "lower" || name == "capitalize" || name == "title")
    return with_case(self, name, call);
  if (name == "startswith" || name == "endswith") return affix(source, name, call);
  if (name == "split" || name == "rsplit") return split(context, source, call, name == "rsplit");
  if (name == "splitlines") {
    const Bound bound("str.splitlines", call, {"keepends"});
    return list_of(context, split_lines(source, bound.truth(0, false)));
  }
  if (name == "join") return join(context, self, call);
  if (name == "replace") {
    const Bound bound("str.replace", call, {"old", "new", "count"});
    const bool markup = self.get<Text>().markup;
    return text(replaced(context, source, bound.text(0),
                         markup ? escaped(bound.text(1)) : bound.text(1), bound.integer(2, -1)),
                markup);
  }
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex")
    return find_method_call(source, name, call);
  if (name == "count") return count(source, call);
  if (name == "format") return text(brace_format(context, source, call));
  if (name == "center" || name == "ljust" || name == "rjust")
    return padded(context, source, name, call);
  if (name == "zfill") return zero_filled(context, source, call);
  if (name == "partition" || name == "rpartition") return partition(context, source, name, call);
  if (name == "removeprefix" || name == "removesuffix") return without_affix(source, name, call);
  if (name.starts_with("is")) {
    const Bound bound("str." + name, call, {});
    if (const auto answer = character_test(source, name)) return Value::of(*answer);
  }
  fault("the method str." + name + " is not supported");
}

}  // namespace phx::jinja
