// Filters on lists, dicts and what else can be iterated.
#include <algorithm>
#include <charconv>

#include "phalanx/text/jinja/filters.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

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

}  // namespace

void add_sequence_filters(FilterTable& table) {
  table.insert({
      {"batch", batch},
      {"count", length},
      {"dictsort", dictsort},
      {"first", first},
      {"groupby", groupby},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", to_list},
      {"map", map},
      {"max", extreme<true>},
      {"min", extreme<false>},
      {"reject", choose<false, false>},
      {"rejectattr", choose<false, true>},
      {"reverse", reverse},
      {"select", choose<true, false>},
      {"selectattr", choose<true, true>},
      {"sort", sort},
      {"sum", sum},
      {"unique", unique},
  });
}

}  // namespace phx::jinja
