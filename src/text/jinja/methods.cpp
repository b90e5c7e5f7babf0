// Attributes that are methods, those of lists, dicts and loops, and the global functions.
#include <algorithm>
#include <array>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(std::string_view name, Names names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_text_method(std::string_view name) {
  return is_one_of(
      name, {"strip",      "lstrip",       "rstrip",       "upper",      "lower",    "capitalize",
             "title",      "startswith",   "endswith",     "split",      "rsplit",   "splitlines",
             "join",       "replace",      "find",         "rfind",      "index",    "rindex",
             "count",      "format",       "center",       "ljust",      "rjust",    "zfill",
             "partition",  "rpartition",   "removeprefix", "isspace",    "isalpha",  "isdecimal",
             "isdigit",    "removesuffix", "isnumeric",    "isalnum",    "isascii",  "isupper",
             "islower",    "casefold",     "encode",       "expandtabs", "istitle",  "isidentifier",
             "format_map", "isprintable",  "maketrans",    "swapcase",   "translate"});
}

// What Jinja's sandbox answers for what would change a value.
Value unsafe(const Value& value, const std::string& name) {
  return undefined("access to attribute '" + name + "' of '" + type_name(value) +
                   "' object is unsafe: templates do not change lists and dicts");
}

int64_t index_of(Context& context, const Values& items, const Call& call, const char* function) {
  const Bound bound(function, call, {"value"});
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], bound.at(0), context.budget)) return int64_t(i);
  fault(str_cat(function, ": the value is not there"));
}

Value call_list_method(Context& context, const Value& self, const std::string& name,
                       const Call& call) {
  const Values& items = self.get<List>().items;
  if (name == "index") return Value::of(index_of(context, items, call, "list.index"));
  if (name == "count") {
    const Bound bound("list.count", call, {"value"});
    return Value::of(std::ranges::count_if(
        items, [&](const Value& item) { return equal(item, bound.at(0), context.budget); }));
  }
  const Bound bound("list.copy", call, {});
  return self;
}

Value call_dict_method(Context& context, const Value& self, const std::string& name,
                       const Call& call) {
  if (name == "get") {
    if (!call.named.empty()) fault("dict.get takes no named arguments");
    const Bound bound("dict.get", call, {"key", "default"});
    const Value* found = find(self.get<Dict>(), bound.at(0), context.budget);
    if (found != nullptr) return *found;
    return bound.find(1) != nullptr ? *bound.find(1) : none();
  }
  const Bound bound("dict." + name, call, {});
  if (name == "copy") return self;
  const ViewOf of = name == "keys"     ? ViewOf::keys
                    : name == "values" ? ViewOf::values
                                       : ViewOf::items;
  return Value(Kind::view, std::make_shared<View>(View{self, of}));
}

Value call_loop_method(Context& context, LoopState& loop, const std::string& name,
                       const Call& call) {
  if (name == "cycle") {
    if (call.positional.empty()) fault("loop.cycle needs something to choose from");
    return call.positional[size_t(loop.index0) % call.positional.size()];
  }
  const bool changed =
      !loop.changed || !equal(list(*loop.changed), list(call.positional), context.budget);
  if (changed) loop.changed = call.positional;
  return Value::of(changed);
}

Value make_range(const Call& call) {
  if (!call.named.empty()) fault("range takes no named arguments");
  const Bound bound("range", call, {"start", "stop", "step"});
  Range range{0, 0, 1};
  if (call.positional.size() < 2) {
    range.stop = bound.integer(0);
  } else {
    range = {bound.integer(0), bound.integer(1), 1};
    if (call.positional.size() == 3) range.step = bound.integer(2);
  }
  if (range.step == 0) fault("range: the step cannot be 0");
  constexpr int64_t kMost = 100'000;  // Jinja's sandbox has the same
  if (range.size() < 0 || range.size() > kMost)
    fault(str_cat("range has more than ", kMost, " numbers"));
  return Value(Kind::range, std::make_shared<Range>(range));
}

std::vector<std::pair<Value, Value>> dict_items(Context& context, const Call& call,
                                                const char* function) {
  if (call.positional.size() > 1) fault(str_cat(function, " takes one argument without a name"));
  std::vector<std::pair<Value, Value>> items;
  if (!call.positional.empty()) {
    const Value& from = call.positional[0];
    if (from.is(Kind::dict)) {
      items = from.get<Dict>().items;
      context.budget.spend(int64_t(items.size()));
    } else {
      for (const Value& pair : elements(from, context.budget)) {
        const Values both = elements(pair, context.budget);
        if (both.size() != 2) fault(str_cat(function, " needs pairs of key and value"));
        items.emplace_back(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : call.named) items.emplace_back(text(name), value);
  return items;
}

Value make_namespace(Context& context, const Call& call) {
  const Value all = dict(dict_items(context, call, "namespace"), context.budget);
  auto made = std::make_shared<Namespace>();
  for (const auto& [name, value] : all.get<Dict>().items) {
    if (!name.is(Kind::text)) fault("the names in a namespace are strings");
    if (name.text().starts_with('_'))
      fault("a namespace takes no names that begin with '_': " + name.text());
    made->items.emplace_back(name.text(), value);
  }
  context.namespaces.push_back(made);
  return Value(Kind::space, made);
}

Value strftime_now(Context& context, const Call& call) {
  const Bound bound("strftime_now", call, {"format"});
  const std::string& format = bound.text(0);
  if (format.empty()) return text("");
  context.budget.spend_bytes(format.size() * 16);
  std::string out(format.size() * 16 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &context.now));
  if (!is_valid_utf8(out)) fault("strftime_now: the format gives no valid UTF-8");
  return text(std::move(out));
}

}  // namespace

std::optional<Value> find_method(const Value& value, const std::string& name) {
  if (name.starts_with("__")) return unsafe(value, name);
  switch (value.kind()) {
    case Kind::text:
      if (is_text_method(name)) return method(value, name);
      return std::nullopt;
    case Kind::list:
      if (is_one_of(name, {"index", "count", "copy"})) return method(value, name);
      if (is_one_of(name,
                    {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}))
        return unsafe(value, name);
      return std::nullopt;
    case Kind::tuple:
      if (is_one_of(name, {"index", "count"})) return method(value, name);
      return std::nullopt;
    case Kind::dict:
      if (is_one_of(name, {"get", "keys", "values", "items", "copy"})) return method(value, name);
      if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"}))
        return unsafe(value, name);
      if (name == "fromkeys") fault("the method dict.fromkeys is not supported");
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Value call_method(Context& context, const Value& self, const std::string& name, const Call& call) {
  switch (self.kind()) {
    case Kind::text:
      return call_text_method(context, self, name, call);
    case Kind::list:
    case Kind::tuple:
      return call_list_method(context, self, name, call);
    case Kind::dict:
      return call_dict_method(context, self, name, call);
    case Kind::loop:
      return call_loop_method(context, self.get<LoopState>(), name, call);
    default:
      fault("a " + type_name(self) + " has no method " + name);
  }
}

bool has_function(std::string_view name) {
  return is_one_of(name, {"range", "namespace", "dict", "raise_exception", "strftime_now", "cycler",
                          "joiner", "lipsum"});
}

Value call_function(Context& context, const std::string& name, const Call& call) {
  context.budget.spend();
  if (name == "range") return make_range(call);
  if (name == "namespace") return make_namespace(context, call);
  if (name == "dict") return dict(dict_items(context, call, "dict"), context.budget);
  if (name == "strftime_now") return strftime_now(context, call);
  if (name == "raise_exception") {
    const Bound bound("raise_exception", call, {"message"});
    fault("the template refuses the chat: " + to_text(bound.at(0), context.budget));
  }
  fault("the function " + name + " is not supported");
}

}  // namespace phx::jinja
