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
bool is_number(const Value& value) { return is_integral(value) || value.is(Kind::real); }
double as_real(const Value& value) {
  return value.is(Kind::real) ? value.real() : double(value.integer());
}

namespace {

// 64 bits of mantissa: every int64 and every double is exact.
long double exact(const Value& value) {
  return value.is(Kind::real) ? static_cast<long double>(value.real())
                              : static_cast<long double>(value.integer());
}

bool equal_lists(const Values& a, const Values& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], budget)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(b, key, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (is_number(a) && is_number(b)) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      budget.spend_bytes(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return equal_lists(a.get<List>().items, b.get<List>().items, budget);
    case Kind::dict:
      return equal_dicts(a.get<Dict>(), b.get<Dict>(), budget);
    case Kind::range: {
      const Range &x = a.get<Range>(), &y = b.get<Range>();
      const int64_t size = x.size();
      return size == y.size() && (size == 0 || x.start == y.start) &&
             (size <= 1 || x.step == y.step);
    }
    default:
      return a.same_object(b);
  }
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (is_number(a) && is_number(b)) return exact(a) < exact(b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // bytes of UTF-8 sort as code points do
  }
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    const Values &x = a.get<List>().items, &y = b.get<List>().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    return x.size() < y.size();
  }
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) fault(undefined_message(*value));
  fault(str_cat("'<' and its kin do not go between ", type_name(a), " and ", type_name(b)));
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

namespace {

Values elements_of_dict(const Dict& dict, ViewOf of) {
  Values items;
  items.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    if (of == ViewOf::items)
      items.push_back(tuple({key, value}));
    else
      items.push_back(of == ViewOf::keys ? key : value);
  }
  return items;
}

}  // namespace

Values elements(const Value& value, Budget& budget) {
  budget.spend(1 + std::max<int64_t>(0, size_of(value)));
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::text: {
      Values items;
      for (const std::string_view character : characters(value.text()))
        items.push_back(text(std::string(character)));
      return items;
    }
    case Kind::list:
    case Kind::tuple:
      return value.get<List>().items;
    case Kind::dict:
      return elements_of_dict(value.get<Dict>(), ViewOf::keys);
    case Kind::view:
      return elements_of_dict(value.get<View>().dict.get<Dict>(), value.get<View>().of);
    case Kind::range: {
      const Range& range = value.get<Range>();
      Values items;
      for (int64_t i = 0, n = range.size(); i < n; ++i)
        items.push_back(Value::of(range.start + i * range.step));
      return items;
    }
    case Kind::iterator: {
      Iterator& source = value.get<Iterator>();
      Values items(source.items.begin() + int64_t(source.next), source.items.end());
      source.next = source.items.size();
      budget.spend(int64_t(items.size()));
      return items;
    }
    case Kind::loop:
      fault("iterating over `loop` itself is not supported");
    default:
      fault(str_cat("a ", type_name(value), " cannot be iterated"));
  }
}

}  // namespace phx::jinja
