// Filters on text and numbers, and the table of all filters.
#include "phalanx/text/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "phalanx/text/jinja/syntax.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

// Jinja's soft_str: markup stays what it is.
std::string as_text(Context& context, const Value& value) {
  return value.is(Kind::text) ? value.text() : to_text(value, context.budget);
}

// ---- text

template <auto Change>
Value change_text(Context& context, const Value& value, const Call& call) {
  const Bound bound("this filter", call, {});
  const std::string source = as_text(context, value);
  context.budget.spend_bytes(source.size());
  return text(Change(source), is_markup(value));
}

// Capitals after white space, hyphens and opening brackets, unlike str.title().
std::string title_words(std::string_view source) {
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    const std::string_view first = first_character(word);
    out += upper(first) + lower(std::string_view(word).substr(first.size()));
    word.clear();
  };
  for (const std::string_view character : characters(source)) {
    const char32_t c = code_point(character);
    if (is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<') {
      flush();
      out += character;
    } else {
      word += character;
    }
  }
  flush();
  return out;
}

Value trim(Context& context, const Value& value, const Call& call) {
  const Bound bound("trim", call, {"chars"});
  const std::string source = as_text(context, value);
  context.budget.spend_bytes(source.size());
  return text(
      std::string(bound.is_none(0) ? strip(source) : strip(source, bound.text(0), Side::both)),
      is_markup(value));
}

Value replace(Context& context, const Value& value, const Call& call) {
  const Bound bound("replace", call, {"old", "new", "count"});
  return text(replaced(context, to_text(value, context.budget),
                       to_text(bound.at(0), context.budget), to_text(bound.at(1), context.budget),
                       bound.integer(2, -1)));
}

Value indent(Context& context, const Value& value, const Call& call) {
  const Bound bound("indent", call, {"width", "first", "blank"});
  if (!value.is(Kind::text)) fault("indent needs a str, not " + type_name(value));
  std::string blanks(4, ' ');
  if (bound.find(0) != nullptr && bound.at(0).is(Kind::text)) {
    blanks = bound.text(0);
  } else if (bound.find(0) != nullptr) {
    const int64_t width = std::max<int64_t>(0, bound.integer(0));
    context.budget.spend_bytes(size_t(std::min<int64_t>(width, int64_t{1} << 40)));
    blanks.assign(size_t(width), ' ');
  }
  const bool first = bound.truth(1, false), blank = bound.truth(2, false);
  const std::string source = value.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(source);
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    context.budget.spend_bytes(lines[i].size() + blanks.size());
    if (i > 0) out += '\n';
    if (i == 0 ? first : blank || !lines[i].empty()) out += blanks;
    out += lines[i];
  }
  return text(std::move(out), is_markup(value));
}

Value truncate(Context& context, const Value& value, const Call& call) {
  const Bound bound("truncate", call, {"length", "killwords", "end", "leeway"});
  if (size_of(value) < 0) fault("truncate needs a str, not " + type_name(value));
  const std::string end = bound.find(2) != nullptr ? bound.text(2) : "...";
  const int64_t length = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const int64_t size = size_of(value), kept = length - length_of(end);
  if (kept < 0 || leeway < 0) fault("truncate: the length is shorter than what marks the end");
  if (size - leeway <= length) return value;
  if (!value.is(Kind::text)) fault("truncate cannot cut a " + type_name(value));
  context.budget.spend_bytes(value.text().size());
  std::string_view cut = slice_of(value.text(), 0, kept);
  if (!bound.truth(1, false)) cut = cut.substr(0, cut.rfind(' '));
  return text(std::string(cut) + end, is_markup(value));
}

Value center(Context& context, const Value& value, const Call& call) {
  const Bound bound("center", call, {"width"});
  return call_text_method(context, text(as_text(context, value)), "center",
                          {.positional = {Value::of(bound.integer(0, 80))}});
}

Value wordcount(Context& context, const Value& value, const Call& call) {
  const Bound bound("wordcount", call, {});
  const std::string source = as_text(context, value);
  int64_t words = 0;
  bool inside = false;
  for (const std::string_view character : characters(source)) {
    context.budget.spend();
    const char32_t c = code_point(character);
    const bool letter = c == '_' || is_letter(c) || is_digit(c);
    words += letter && !inside;
    inside = letter;
  }
  return Value::of(words);
}

Value format(Context& context, const Value& value, const Call& call) {
  if (!call.named.empty()) fault("format with named values is not supported");
  return text(percent_format(context, as_text(context, value), tuple(call.positional)));
}

Value string(Context& context, const Value& value, const Call& call) {
  const Bound bound("string", call, {});
  return value.is(Kind::text) ? value : text(to_text(value, context.budget));
}

Value safe(Context& context, const Value& value, const Call& call) {
  const Bound bound("safe", call, {});
  return text(to_text(value, context.budget), /*markup=*/true);
}

Value escape(Context& context, const Value& value, const Call& call) {
  const Bound bound("escape", call, {});
  if (is_markup(value)) return value;
  const std::string source = to_text(value, context.budget);
  context.budget.spend_bytes(6 * source.size());
  return text(escaped(source), /*markup=*/true);
}

Value tojson(Context& context, const Value& value, const Call& call) {
  const Bound bound("tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{.ensure_ascii = bound.truth(0, false), .sort_keys = bound.truth(3, false)};
  if (!bound.is_none(1)) {
    if (bound.at(1).is(Kind::text)) {
      style.indent = bound.text(1);
    } else {
      const int64_t width = std::max<int64_t>(0, bound.integer(1));
      if (width > 1000) fault("tojson: an indent of " + std::to_string(width) + " is too wide");
      style.indent = std::string(size_t(width), ' ');
    }
    style.item_separator = ",";
  }
  if (!bound.is_none(2)) {
    const Values both = elements(bound.at(2), context.budget);
    if (both.size() != 2 || !both[0].is(Kind::text) || !both[1].is(Kind::text))
      fault("tojson: separators should be two strings");
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  }
  return text(to_json(context, value, style));
}

// ---- numbers

std::optional<int64_t> parse_integer(std::string_view source) {
  std::string digits(strip(source));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error == std::errc::result_out_of_range) fault("int: the number is larger than 64 bits hold");
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string_view source) {
  std::string digits(strip(source));
  std::erase(digits, '_');
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

Value truncated_real(double value, const Value& otherwise) {
  if (!std::isfinite(value)) return otherwise;
  if (std::abs(value) >= 9.2e18) fault("int: the number is larger than 64 bits hold");
  return Value::of(int64_t(value));
}

Value to_int(Context&, const Value& value, const Call& call) {
  const Bound bound("int", call, {"default", "base"});
  const Value otherwise = bound.find(0) != nullptr ? bound.at(0) : Value::of(int64_t{0});
  if (bound.integer(1, 10) != 10) fault("int with a base other than 10 is not supported");
  if (is_integral(value)) return Value::of(value.integer());
  if (value.is(Kind::real)) return truncated_real(value.real(), otherwise);
  if (value.is(Kind::undefined)) fault(undefined_message(value));
  if (!value.is(Kind::text)) return otherwise;
  if (const auto whole = parse_integer(value.text())) return Value::of(*whole);
  const auto real = parse_real(value.text());
  return real ? truncated_real(*real, otherwise) : otherwise;
}

Value to_float(Context&, const Value& value, const Call& call) {
  const Bound bound("float", call, {"default"});
  if (is_number(value)) return Value::of(as_real(value));
  if (value.is(Kind::undefined)) fault(undefined_message(value));
  if (value.is(Kind::text))
    if (const auto real = parse_real(value.text())) return Value::of(*real);
  return bound.find(0) != nullptr ? bound.at(0) : Value::of(0.0);
}

Value absolute(Context& context, const Value& value, const Call& call) {
  const Bound bound("abs", call, {});
  if (!is_number(value)) fault("abs needs a number, not " + type_name(value));
  if (value.is(Kind::real)) return Value::of(std::abs(value.real()));
  return value.integer() < 0 ? negated(value) : binary(context, "+", value, Value::of(int64_t{0}));
}

Value round(Context&, const Value& value, const Call& call) {
  const Bound bound("round", call, {"precision", "method"});
  if (!is_number(value)) fault("round needs a number, not " + type_name(value));
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.find(1) != nullptr ? bound.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fault("round: the method is common, ceil or floor");
  if (method == "common" && precision == 0 && !value.is(Kind::real))
    return Value::of(value.integer());
  if (precision < 0 || precision > 15) fault("round is supported for 0 to 15 digits");
  if (method == "common") {
    // The nearest decimal, ties by the exact binary value: what printf does too.
    char buffer[400];
    const int size = std::snprintf(buffer, sizeof buffer, "%.*f", int(precision), as_real(value));
    double rounded = 0;
    std::from_chars(buffer, buffer + size, rounded);
    return value.is(Kind::real) ? Value::of(rounded) : Value::of(value.integer());
  }
  const double scale = std::pow(10.0, double(precision)), scaled = as_real(value) * scale;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value default_value(Context&, const Value& value, const Call& call) {
  const Bound bound("default", call, {"default_value", "boolean"});
  const bool lacks = value.is(Kind::undefined) || (bound.truth(1, false) && !truth(value));
  if (!lacks) return value;
  return bound.find(0) != nullptr ? bound.at(0) : text("");
}

Value attr(Context& context, const Value& value, const Call& call) {
  const Bound bound("attr", call, {"name"});
  if (value.is(Kind::dict) && !find_method(value, bound.text(0)))
    return undefined("'dict object' has no attribute '" + bound.text(0) + "'");
  return attribute(context, value, bound.text(0));
}

std::string capitalized(std::string_view source) { return capitalize(source); }

FilterTable make_filters() {
  FilterTable table = {
      {"abs", absolute},
      {"attr", attr},
      {"capitalize", change_text<capitalized>},
      {"center", center},
      {"d", default_value},
      {"default", default_value},
      {"e", escape},
      {"escape", escape},
      {"float", to_float},
      {"format", format},
      {"indent", indent},
      {"int", to_int},
      {"lower", change_text<lower>},
      {"replace", replace},
      {"round", round},
      {"safe", safe},
      {"string", string},
      {"title", change_text<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", change_text<upper>},
      {"wordcount", wordcount},
  };
  add_sequence_filters(table);
  return table;
}

const FilterTable& filters() {
  static const FilterTable table = make_filters();
  return table;
}

}  // namespace

bool has_filter(std::string_view name) { return filters().contains(name); }

Value apply_filter(Context& context, const std::string& name, const Value& value,
                   const Call& call) {
  context.budget.spend();
  const auto found = filters().find(name);
  if (found == filters().end()) fault("the filter '" + name + "' is not supported");
  return found->second(context, value, call);
}

}  // namespace phx::jinja
