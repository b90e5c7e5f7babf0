#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "data/chat/builtins.h"
#include "data/chat/syntax.h"
#include "data/chat/unicode_text.h"

namespace phx::jinja {
namespace {

using Filter = Value (*)(Context&, const Value&, const Call&);

bool is_markup(const Value& value) { return value.is(Kind::text) && value.get<Text>().markup; }

// Jinja's soft_str: markup stays what it is.
std::string as_text(Context& context, const Value& value) {
  return value.is(Kind::text) ? value.text() : to_text(value, context.budget);
}

// ---- getting at parts

// "a.b.0": what map, selectattr and sort look up in each item.
struct Path {
  Values parts;
  std::optional<Value> otherwise = {};

  Value of(Context& context, Value value) const {
    for (const Value& part : parts) {
      value = item(context, value, part);
      if (otherwise && value.is(Kind::undefined)) value = *otherwise;
    }
    return value;
  }
};

Path parse_path(const Value& attribute) {
  Path path;
  if (attribute.is(Kind::none)) return path;
  if (!attribute.is(Kind::text)) return {.parts = {attribute}};
  std::string_view rest = attribute.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits =
        !part.empty() && part[0] != '-' && error == std::errc() && end == part.data() + part.size();
    path.parts.push_back(digits ? Value::of(index) : text(part));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

Value folded(const Value& value) {  // for sorting without regard to case
  return value.is(Kind::text) ? text(lower(value.text())) : value;
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
  if (!value.is(Kind::text) && size_of(value) != 0)
    fault("truncate needs a str, not " + type_name(value));
  const std::string end = bound.find(2) != nullptr ? bound.text(2) : "...";
  const int64_t length = bound.integer(0, 255), leeway = bound.integer(3, 5);
  const int64_t size = size_of(value), kept = length - length_of(end);
  if (kept < 0 || leeway < 0) fault("truncate: the length is shorter than what marks the end");
  if (size - leeway <= length) return value;
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
  int64_t words = 0;
  bool inside = false;
  for (const std::string_view character : characters(as_text(context, value))) {
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

// ---- sequences

Value length(Context&, const Value& value, const Call& call) {
  const Bound bound("length", call, {});
  const int64_t size = size_of(value);
  if (size < 0) fault("a " + type_name(value) + " has no length");
  return Value::of(size);
}

Value first(Context& context, const Value& value, const Call& call) {
  const Bound bound("first", call, {});
  if (value.is(Kind::iterator)) {
    Iterator& source = value.get<Iterator>();
    if (source.next < source.items.size()) return source.items[source.next++];
    return undefined("No first item, sequence was empty.");
  }
  const Values items = elements(value, context.budget);
  return items.empty() ? undefined("No first item, sequence was empty.") : items.front();
}

Value last(Context& context, const Value& value, const Call& call) {
  const Bound bound("last", call, {});
  if (value.is(Kind::iterator)) fault("last needs a list; `| list` makes one");
  const Values items = elements(value, context.budget);
  return items.empty() ? undefined("No last item, sequence was empty.") : items.back();
}

Value to_list(Context& context, const Value& value, const Call& call) {
  const Bound bound("list", call, {});
  return list(elements(value, context.budget));
}

Value reverse(Context& context, const Value& value, const Call& call) {
  const Bound bound("reverse", call, {});
  Values items = elements(value, context.budget);
  std::ranges::reverse(items);
  if (value.is(Kind::text)) return text(joined(context, "", items), is_markup(value));
  return value.is(Kind::iterator) ? list(std::move(items)) : iterator(std::move(items));
}

Value join(Context& context, const Value& value, const Call& call) {
  const Bound bound("join", call, {"d", "attribute"});
  Values items = elements(value, context.budget);
  if (!bound.is_none(1)) {
    const Path path = parse_path(bound.at(1));
    for (Value& item : items) item = path.of(context, item);
  }
  const std::string separator =
      bound.find(0) != nullptr ? to_text(bound.at(0), context.budget) : "";
  return text(joined(context, separator, items));
}

Value items(Context& context, const Value& value, const Call& call) {
  const Bound bound("items", call, {});
  if (value.is(Kind::undefined)) return iterator({});
  if (!value.is(Kind::dict)) fault("items needs a dict, not " + type_name(value));
  return iterator(elements(Value(Kind::view, std::make_shared<View>(View{value, ViewOf::items})),
                           context.budget));
}

// Stable, and the order of equal ones is kept when it is reversed, as Python does. Python compares
// lists of keys by what differs first, and bare keys by `<` alone, which not all values have.
enum class Keys { lists, bare };
void sort_by(Context& context, Values& items, const std::vector<Values>& keys, Keys kind,
             bool reversed) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](const Values& a, const Values& b) {
    if (kind == Keys::bare) return less(a[0], b[0], context.budget);
    for (size_t k = 0; k < a.size(); ++k)
      if (!equal(a[k], b[k], context.budget)) return less(a[k], b[k], context.budget);
    return false;
  };
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return reversed ? before(keys[b], keys[a]) : before(keys[a], keys[b]);
  });
  Values sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value sort(Context& context, const Value& value, const Call& call) {
  const Bound bound("sort", call, {"reverse", "case_sensitive", "attribute"});
  Values all = elements(value, context.budget);
  std::vector<Path> paths;
  if (bound.is_none(2)) {
    paths.emplace_back();
  } else if (!bound.at(2).is(Kind::text)) {
    paths.push_back(parse_path(bound.at(2)));
  } else {
    std::string_view rest = bound.text(2);
    for (size_t comma; (comma = rest.find(',')) != std::string_view::npos;
         rest.remove_prefix(comma + 1))
      paths.push_back(parse_path(text(std::string(rest.substr(0, comma)))));
    paths.push_back(parse_path(text(std::string(rest))));
  }
  std::vector<Values> keys;
  for (const Value& item : all) {
    Values key;
    for (const Path& path : paths) {
      const Value part = path.of(context, item);
      key.push_back(bound.truth(1, false) ? part : folded(part));
    }
    keys.push_back(std::move(key));
  }
  sort_by(context, all, keys, Keys::lists, bound.truth(0, false));
  return list(std::move(all));
}

Value dictsort(Context& context, const Value& value, const Call& call) {
  const Bound bound("dictsort", call, {"case_sensitive", "by", "reverse"});
  if (!value.is(Kind::dict)) fault("dictsort needs a dict, not " + type_name(value));
  const std::string by = bound.find(1) != nullptr ? bound.text(1) : "key";
  if (by != "key" && by != "value") fault("dictsort sorts by key or by value");
  Values all;
  std::vector<Values> keys;
  for (const auto& [key, held] : value.get<Dict>().items) {
    const Value& chosen = by == "key" ? key : held;
    keys.push_back({bound.truth(0, false) ? chosen : folded(chosen)});
    all.push_back(tuple({key, held}));
  }
  context.budget.spend(int64_t(all.size()));
  sort_by(context, all, keys, Keys::bare, bound.truth(2, false));
  return list(std::move(all));
}

Value unique(Context& context, const Value& value, const Call& call) {
  const Bound bound("unique", call, {"case_sensitive", "attribute"});
  const Path path = bound.is_none(1) ? Path{} : parse_path(bound.at(1));
  Values kept, seen;
  for (const Value& item : elements(value, context.budget)) {
    const Value part = path.of(context, item);
    const Value key = bound.truth(0, false) ? part : folded(part);
    const auto same = [&](const Value& other) { return equal(key, other, context.budget); };
    if (std::ranges::any_of(seen, same)) continue;
    seen.push_back(key);
    kept.push_back(item);
  }
  return iterator(std::move(kept));
}

template <bool kLargest>
Value extreme(Context& context, const Value& value, const Call& call) {
  const Bound bound(kLargest ? "max" : "min", call, {"case_sensitive", "attribute"});
  const Path path = bound.is_none(1) ? Path{} : parse_path(bound.at(1));
  std::optional<Value> best, best_key;
  for (const Value& item : elements(value, context.budget)) {
    const Value part = path.of(context, item);
    const Value key = bound.truth(0, false) ? part : folded(part);
    if (best &&
        !(kLargest ? less(*best_key, key, context.budget) : less(key, *best_key, context.budget)))
      continue;
    best = item;
    best_key = key;
  }
  return best ? *best : undefined("No aggregated item, sequence was empty.");
}

Value sum(Context& context, const Value& value, const Call& call) {
  const Bound bound("sum", call, {"attribute", "start"});
  const Path path = bound.is_none(0) ? Path{} : parse_path(bound.at(0));
  Value total = bound.find(1) != nullptr ? bound.at(1) : Value::of(int64_t{0});
  if (total.is(Kind::text)) fault("sum does not add strings; join does");
  for (const Value& item : elements(value, context.budget))
    total = binary(context, "+", total, path.of(context, item));
  return total;
}

Value batch(Context& context, const Value& value, const Call& call) {
  const Bound bound("batch", call, {"linecount", "fill_with"});
  const int64_t width = bound.integer(0);
  if (width < 1) fault("batch: linecount should be 1 or more");
  Values batches, current;
  const auto flush = [&] {
    batches.push_back(list(std::move(current)));
    current.clear();
  };
  for (const Value& item : elements(value, context.budget)) {
    if (int64_t(current.size()) == width) flush();
    current.push_back(item);
  }
  if (!current.empty()) {
    while (!bound.is_none(1) && int64_t(current.size()) < width) {
      context.budget.spend();
      current.push_back(bound.at(1));
    }
    flush();
  }
  return iterator(std::move(batches));
}

Value groupby(Context& context, const Value& value, const Call& call) {
  const Bound bound("groupby", call, {"attribute", "default", "case_sensitive"});
  Path path = parse_path(bound.at(0));
  if (!bound.is_none(1)) path.otherwise = bound.at(1);
  Values all = elements(value, context.budget);
  std::vector<Values> keys;
  const auto key_of = [&](const Value& item) {
    const Value key = path.of(context, item);
    return bound.truth(2, false) ? key : folded(key);
  };
  for (const Value& item : all) keys.push_back({key_of(item)});
  sort_by(context, all, keys, Keys::bare, /*reversed=*/false);
  Values groups;
  for (size_t i = 0; i < all.size();) {
    const Value key = key_of(all[i]);
    const size_t start = i;
    while (i < all.size() && equal(key_of(all[i]), key, context.budget)) ++i;
    groups.push_back(tuple({path.of(context, all[start]),
                            list(Values(all.begin() + int64_t(start), all.begin() + int64_t(i)))}));
  }
  return list(std::move(groups));
}

Value map(Context& context, const Value& value, const Call& call) {
  if (!truth(value)) return iterator({});
  Values all = elements(value, context.budget);
  if (call.positional.empty()) {
    const Bound bound("map", call, {"attribute", "default"});
    Path path = parse_path(bound.at(0));
    if (!bound.is_none(1)) path.otherwise = bound.at(1);
    for (Value& item : all) item = path.of(context, item);
    return iterator(std::move(all));
  }
  if (!call.positional[0].is(Kind::text)) fault("map needs the name of a filter");
  const std::string& name = call.positional[0].text();
  const Call rest{.positional = Values(call.positional.begin() + 1, call.positional.end()),
                  .named = call.named};
  for (Value& item : all) item = apply_filter(context, name, item, rest);
  return iterator(std::move(all));
}

template <bool kKeeps, bool kByAttribute>
Value choose(Context& context, const Value& value, const Call& call) {
  if (!truth(value)) return iterator({});
  size_t used = 0;
  Path path;
  if (kByAttribute) {
    if (call.positional.empty()) fault("selectattr and rejectattr need the name of an attribute");
    path = parse_path(call.positional[used++]);
  }
  std::optional<std::string> test;
  if (used < call.positional.size()) {
    if (!call.positional[used].is(Kind::text)) fault("select and its kin need the name of a test");
    test = call.positional[used++].text();
  }
  const Call rest{
      .positional = Values(call.positional.begin() + int64_t(used), call.positional.end()),
      .named = call.named};
  Values kept;
  for (const Value& item : elements(value, context.budget)) {
    const Value part = path.of(context, item);
    const bool holds = test ? apply_test(context, *test, part, rest) : truth(part);
    if (holds == kKeeps) kept.push_back(item);
  }
  return iterator(std::move(kept));
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

const std::map<std::string_view, Filter>& filters() {
  static const std::map<std::string_view, Filter> all = {
      {"abs", absolute},
      {"attr", attr},
      {"batch", batch},
      {"capitalize", change_text<capitalized>},
      {"center", center},
      {"count", length},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", to_float},
      {"format", format},
      {"groupby", groupby},
      {"indent", indent},
      {"int", to_int},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", to_list},
      {"lower", change_text<lower>},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", round},
      {"safe", safe},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", change_text<title_words>},
      {"tojson", tojson},
      {"trim", trim},
      {"truncate", truncate},
      {"unique", unique},
      {"upper", change_text<upper>},
      {"wordcount", wordcount},
  };
  return all;
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
