#include "phalanx/text/jinja/value.h"

#include <algorithm>

#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

void fault(const std::string& message) { throw Fault(message); }

void Budget::exhausted() {
  fault(
      "rendering takes more steps than a template is allowed, so it is stopped: it loops too long "
      "or makes too much text");
}

int64_t Range::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const auto span = step > 0 ? uint64_t(stop) - uint64_t(start) : uint64_t(start) - uint64_t(stop);
  const uint64_t stride = step > 0 ? uint64_t(step) : uint64_t(0) - uint64_t(step);
  return int64_t((span - 1) / stride + 1);
}

Value Value::of(Kind kind, int64_t bits) {
  Value value;
  value.kind_ = kind;
  value.integer_ = bits;
  return value;
}
Value Value::of(bool value) { return of(Kind::boolean, value ? 1 : 0); }
Value Value::of(int64_t value) { return of(Kind::integer, value); }
Value Value::of(double value) {
  Value result = of(Kind::real, 0);
  result.real_ = value;
  return result;
}

bool Value::same_object(const Value& other) const {
  if (kind_ != other.kind_) return false;
  if (object_ || other.object_) return object_ == other.object_;
  return kind_ == Kind::undefined || integer_ == other.integer_;
}

namespace {

int depth_of(const Value& value) {
  switch (value.kind()) {
    case Kind::list:
    case Kind::tuple:
      return value.get<List>().depth;
    case Kind::dict:
      return value.get<Dict>().depth;
    case Kind::view:
      return value.get<View>().dict.get<Dict>().depth + 1;
    case Kind::iterator:
      return value.get<Iterator>().depth;
    case Kind::callable:
      return value.get<Callable>().depth;
    default:
      return 0;
  }
}

int checked_depth(int inner) {
  if (inner >= kMaxNesting)
    fault(str_cat("lists and dicts are nested more than ", kMaxNesting, " deep"));
  return inner + 1;
}

int depth_over(const Values& items) {
  int inner = 0;
  for (const Value& item : items) inner = std::max(inner, depth_of(item));
  return checked_depth(inner);
}

}  // namespace

Value none() { return Value::of(Kind::none, 0); }

Value text(std::string bytes, bool markup) {
  return Value(Kind::text, std::make_shared<Text>(Text{std::move(bytes), markup}));
}

Value undefined(std::string message) {
  return Value(Kind::undefined, std::make_shared<std::string>(std::move(message)));
}

std::string undefined_message(const Value& value) {
  return value.same_object(Value()) ? "a value is undefined" : value.get<std::string>();
}

void need_defined(const Value& value) {
  if (value.is(Kind::undefined)) fault(undefined_message(value));
}

Value list(Values items) {
  const int depth = depth_over(items);
  return Value(Kind::list, std::make_shared<List>(List{std::move(items), depth}));
}

Value tuple(Values items) {
  const int depth = depth_over(items);
  return Value(Kind::tuple, std::make_shared<List>(List{std::move(items), depth}));
}

Value iterator(Values items) {
  const int depth = depth_over(items);
  return Value(Kind::iterator, std::make_shared<Iterator>(Iterator{std::move(items), 0, depth}));
}

Value method(const Value& self, std::string_view name) {
  const int depth = checked_depth(depth_of(self));
  return Value(Kind::callable, std::make_shared<Callable>(Callable{.what = Callable::What::method,
                                                                   .name = std::string(name),
                                                                   .self = self,
                                                                   .depth = depth}));
}

Value function(std::string_view name) {
  return Value(Kind::callable, std::make_shared<Callable>(Callable{.what = Callable::What::function,
                                                                   .name = std::string(name)}));
}

namespace {

void check_hashable(const Value& key) {
  if (key.is(Kind::list) || key.is(Kind::dict))
    fault(str_cat("a ", type_name(key), " cannot be the key of a dict"));
  if (key.is(Kind::tuple))
    for (const Value& item : key.get<List>().items) check_hashable(item);
}

}  // namespace

const Value* find(const Dict& dict, std::string_view key) {
  if (dict.items.size() <= 8) {
    for (const auto& [name, value] : dict.items)
      if (name.is(Kind::text) && name.text() == key) return &value;
    return nullptr;
  }
  const auto found = dict.texts.find(std::string(key));
  return found == dict.texts.end() ? nullptr : &dict.items[found->second].second;
}

const Value* find(const Dict& dict, const Value& key, Budget& budget) {
  check_hashable(key);
  if (key.is(Kind::text)) return find(dict, key.text());
  for (const auto& [name, value] : dict.items) {
    budget.spend();
    if (equal(name, key, budget)) return &value;
  }
  return nullptr;
}

Value dict(std::vector<std::pair<Value, Value>> items, Budget& budget) {
  auto made = std::make_shared<Dict>();
  int inner = 0;
  for (auto& [key, value] : items) {
    budget.spend();
    inner = std::max({inner, depth_of(key), depth_of(value)});
    if (const Value* old = find(*made, key, budget)) {
      const_cast<Value&>(*old) = std::move(value);  // ours still: nobody else has seen it
      continue;
    }
    if (key.is(Kind::text)) made->texts.emplace(key.text(), made->items.size());
    made->items.emplace_back(std::move(key), std::move(value));
  }
  made->depth = checked_depth(inner);
  return Value(Kind::dict, std::move(made));
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return value.get<Text>().markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::view: {
      const ViewOf of = value.get<View>().of;
      return of == ViewOf::keys ? "dict_keys" : of == ViewOf::values ? "dict_values" : "dict_items";
    }
    case Kind::iterator:
      return "generator";
    case Kind::space:
      return "Namespace";
    case Kind::callable:
      return "function";
    case Kind::loop:
      return "LoopContext";
  }
  return "";
}

int64_t size_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return length_of(value.text());
    case Kind::list:
    case Kind::tuple:
      return int64_t(value.get<List>().items.size());
    case Kind::dict:
      return int64_t(value.get<Dict>().items.size());
    case Kind::range:
      return value.get<Range>().size();
    case Kind::view:
      return size_of(value.get<View>().dict);
    default:
      return -1;
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    default: {
      const int64_t size = size_of(value);
      return size != 0;  // what has no length is true
    }
  }
}

bool is_integral(const Value& value) { return value.is(Kind::boolean) || value.is(Kind::integer); }
bool is_indexed(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}
bool is_number(const Value& value) { return is_integral(value) || value.is(Kind::real); }
double as_real(const Value& value) {
  return value.is(Kind::real) ? value.real() : double(value.integer());
}

}  // namespace phx::jinja
