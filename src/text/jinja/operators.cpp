#include <algorithm>
#include <cmath>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

Bound::Bound(std::string_view function, const Call& call,
             std::initializer_list<std::string_view> names)
    : function_(function), names_(names.begin(), names.end()), given_(names.size(), nullptr) {
  if (call.positional.size() > names_.size())
    fault(str_cat(function, " takes ", names_.size(), " arguments at most, not ",
                  call.positional.size()));
  for (size_t i = 0; i < call.positional.size(); ++i) given_[i] = &call.positional[i];
  for (const auto& [name, value] : call.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) fault(str_cat(function, " has no argument called ", name));
    const Value*& place = given_[size_t(found - names_.begin())];
    if (place != nullptr) fault(str_cat(function, " got its argument ", name, " twice"));
    place = &value;
  }
}

const Value& Bound::at(size_t parameter) const {
  if (given_[parameter] == nullptr)
    fault(str_cat(function_, " needs its argument ", names_[parameter]));
  return *given_[parameter];
}

const std::string& Bound::text(size_t parameter) const {
  const Value& value = at(parameter);
  if (!value.is(Kind::text))
    fault(str_cat(function_, ": ", names_[parameter], " should be a str, not ", type_name(value)));
  return value.text();
}

int64_t Bound::integer(size_t parameter) const {
  const Value& value = at(parameter);
  if (!is_integral(value))
    fault(str_cat(function_, ": ", names_[parameter], " should be an int, not ", type_name(value)));
  return value.integer();
}

int64_t Bound::integer(size_t parameter, int64_t otherwise) const {
  return is_none(parameter) ? otherwise : integer(parameter);
}

bool Bound::truth(size_t parameter, bool otherwise) const {
  return given_[parameter] == nullptr ? otherwise : jinja::truth(*given_[parameter]);
}

bool Bound::is_none(size_t parameter) const {
  return given_[parameter] == nullptr || given_[parameter]->is(Kind::none);
}

namespace {

void need_defined(const Value& value) {
  if (value.is(Kind::undefined)) fault(undefined_message(value));
}

[[noreturn]] void no_operation(std::string_view operation, const Value& a, const Value& b) {
  need_defined(a);
  need_defined(b);
  fault(str_cat("'", operation, "' does not go between ", type_name(a), " and ", type_name(b)));
}

[[noreturn]] void overflow(std::string_view operation) {
  fault(str_cat("the result of '", operation, "' is larger than 64 bits hold"));
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) overflow("**");
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow("**");
  }
  return result;
}

Value integer_operation(std::string_view operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation == "+") {
    if (__builtin_add_overflow(a, b, &result)) overflow(operation);
  } else if (operation == "-") {
    if (__builtin_sub_overflow(a, b, &result)) overflow(operation);
  } else if (operation == "*") {
    if (__builtin_mul_overflow(a, b, &result)) overflow(operation);
  } else if (operation == "**") {
    if (b < 0) {
      if (a == 0) fault("division by zero");
      return Value::of(std::pow(double(a), double(b)));
    }
    result = power(a, b);
  } else {
    if (b == 0) fault("division by zero");
    if (operation == "/") return Value::of(double(a) / double(b));
    if (b == -1) {  // INT64_MIN / -1 traps
      if (operation == "%") return Value::of(int64_t{0});
      if (__builtin_sub_overflow(int64_t{0}, a, &result)) overflow(operation);
      return Value::of(result);
    }
    const int64_t rest = a % b;
    const bool adjust = rest != 0 && (rest < 0) != (b < 0);  // Python rounds down
    result = operation == "//" ? a / b - (adjust ? 1 : 0) : rest + (adjust ? b : 0);
  }
  return Value::of(result);
}

Value real_operation(std::string_view operation, double a, double b) {
  if (operation == "+") return Value::of(a + b);
  if (operation == "-") return Value::of(a - b);
  if (operation == "*") return Value::of(a * b);
  if (operation == "**") {
    const double result = std::pow(a, b);
    if (a == 0 && b < 0) fault("division by zero");
    if (a < 0 && std::isnan(result) && !std::isnan(b)) fault("'**' gives a complex number");
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) overflow("**");
    return Value::of(result);
  }
  if (b == 0) fault("division by zero");
  if (operation == "/") return Value::of(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (operation == "%") return Value::of(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  return Value::of(quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient));
}

Value repeated(Context& context, const Value& value, int64_t times) {
  times = std::max<int64_t>(0, times);
  if (value.is(Kind::text)) {
    const std::string& once = value.text();
    if (once.empty()) times = 0;
    if (times > (int64_t{1} << 40)) fault("a string is repeated too often");
    context.budget.spend_bytes(once.size() * size_t(times));
    std::string all;
    all.reserve(once.size() * size_t(times));
    for (int64_t i = 0; i < times; ++i) all += once;
    return text(std::move(all), value.get<Text>().markup);
  }
  const Values& once = value.get<List>().items;
  if (once.empty()) times = 0;
  if (times > (int64_t{1} << 40)) fault("a list is repeated too often");
  context.budget.spend(times * int64_t(once.size()));
  Values all;
  all.reserve(once.size() * size_t(times));
  for (int64_t i = 0; i < times; ++i) all.insert(all.end(), once.begin(), once.end());
  return value.is(Kind::list) ? list(std::move(all)) : tuple(std::move(all));
}

bool is_sequence(const Value& value) {
  return value.is(Kind::text) || value.is(Kind::list) || value.is(Kind::tuple);
}

Value added(Context& context, const Value& a, const Value& b) {
  if (a.is(Kind::text) && b.is(Kind::text)) {
    const Text &x = a.get<Text>(), &y = b.get<Text>();
    context.budget.spend_bytes(x.bytes.size() + y.bytes.size());
    if (x.markup == y.markup) return text(x.bytes + y.bytes, x.markup);
    return text((x.markup ? x.bytes : escaped(x.bytes)) + (y.markup ? y.bytes : escaped(y.bytes)),
                /*markup=*/true);
  }
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    Values all = a.get<List>().items;
    const Values& more = b.get<List>().items;
    context.budget.spend(int64_t(all.size() + more.size()));
    all.insert(all.end(), more.begin(), more.end());
    return a.is(Kind::list) ? list(std::move(all)) : tuple(std::move(all));
  }
  no_operation("+", a, b);
}

}  // namespace

Value binary(Context& context, std::string_view operation, const Value& a, const Value& b) {
  context.budget.spend();
  if (is_integral(a) && is_integral(b))
    return integer_operation(operation, a.integer(), b.integer());
  if (is_number(a) && is_number(b)) return real_operation(operation, as_real(a), as_real(b));
  if (operation == "+") return added(context, a, b);
  if (operation == "*" && is_sequence(a) && is_integral(b))
    return repeated(context, a, b.integer());
  if (operation == "*" && is_sequence(b) && is_integral(a))
    return repeated(context, b, a.integer());
  if (operation == "%" && a.is(Kind::text))
    return text(percent_format(context, a.text(), b), a.get<Text>().markup);
  no_operation(operation, a, b);
}

Value negated(const Value& value) {
  if (value.is(Kind::real)) return Value::of(-value.real());
  if (is_integral(value)) return integer_operation("-", 0, value.integer());
  need_defined(value);
  fault(str_cat("'-' does not go before a ", type_name(value)));
}

bool contains(Context& context, const Value& container, const Value& item) {
  Budget& budget = context.budget;
  if (container.is(Kind::text)) {
    if (!item.is(Kind::text))
      fault(str_cat("`in` a string needs a string before it, not ", type_name(item)));
    budget.spend_bytes(container.text().size());
    return container.text().find(item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) return find(container.get<Dict>(), item, budget) != nullptr;
  if (!is_iterable(container) || container.is(Kind::loop))
    fault(str_cat("`in` needs something to look into, not ", type_name(container)));
  for (const Value& one : elements(container, budget))
    if (equal(one, item, budget)) return true;
  return false;
}

bool compare(Context& context, std::string_view operation, const Value& a, const Value& b) {
  if (operation == "==") return equal(a, b, context.budget);
  if (operation == "!=") return !equal(a, b, context.budget);
  if (operation == "in") return contains(context, b, a);
  if (operation == "not in") return !contains(context, b, a);
  if (operation == "<") return less(a, b, context.budget);
  if (operation == ">") return less(b, a, context.budget);
  // NaN makes every comparison false, so <= is not "not >".
  if (operation == "<=") return less(a, b, context.budget) || equal(a, b, context.budget);
  return less(b, a, context.budget) || equal(a, b, context.budget);
}

namespace {

// Where an index from the end leads; nothing if it is outside.
std::optional<size_t> place(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return size_t(index);
}

std::optional<Value> find_item(Context& context, const Value& value, const Value& key) {
  switch (value.kind()) {
    case Kind::dict: {
      if (key.is(Kind::list) || key.is(Kind::dict)) return std::nullopt;
      const Value* found = find(value.get<Dict>(), key, context.budget);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::space: {
      if (!key.is(Kind::text)) return std::nullopt;
      for (const auto& [name, held] : value.get<Namespace>().items)
        if (name == key.text()) return held;
      return std::nullopt;
    }
    default:
      break;
  }
  const bool sequence = is_sequence(value) || value.is(Kind::range);
  if (!sequence || !is_integral(key)) return std::nullopt;
  const auto at = place(key.integer(), size_of(value));
  if (!at) return std::nullopt;
  if (value.is(Kind::text)) {
    context.budget.spend_bytes(value.text().size());
    return text(std::string(slice_of(value.text(), int64_t(*at), int64_t(*at) + 1)),
                value.get<Text>().markup);
  }
  if (value.is(Kind::range)) {
    const Range& range = value.get<Range>();
    return Value::of(range.start + int64_t(*at) * range.step);
  }
  return value.get<List>().items[*at];
}

Value missing(Context& context, const Value& value, const Value& key) {
  const std::string owner = value.is(Kind::none) ? "None" : type_name(value) + " object";
  if (key.is(Kind::text)) return undefined("'" + owner + "' has no attribute '" + key.text() + "'");
  return undefined(owner + " has no element " + repr(key, context.budget));
}

Value loop_attribute(LoopState& loop, const std::string& name) {
  if (name == "index0") return Value::of(loop.index0);
  if (name == "index") return Value::of(loop.index0 + 1);
  if (name == "first") return Value::of(loop.index0 == 0);
  if (name == "last") return Value::of(loop.peek() == nullptr);
  if (name == "length") return Value::of(loop.total());
  if (name == "revindex") return Value::of(loop.total() - loop.index0);
  if (name == "revindex0") return Value::of(loop.total() - loop.index0 - 1);
  if (name == "depth") return Value::of(int64_t{1});
  if (name == "depth0") return Value::of(int64_t{0});
  if (name == "previtem")
    return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") {
    const Value* next = loop.peek();
    return next == nullptr ? undefined("there is no next item") : *next;
  }
  return undefined("'LoopContext' has no attribute '" + name + "'");
}

}  // namespace

const Value* LoopState::peek() {
  if (ahead.empty() && pull) {
    if (std::optional<Value> next = pull()) ahead.push_back(std::move(*next));
  }
  return ahead.empty() ? nullptr : &ahead.front();
}

int64_t LoopState::total() {
  if (length) return *length;
  while (pull) {
    std::optional<Value> next = pull();
    if (!next) break;
    ahead.push_back(std::move(*next));
  }
  length = index0 + 1 + int64_t(ahead.size());
  return *length;
}

Value attribute(Context& context, const Value& value, const std::string& name) {
  context.budget.spend();
  need_defined(value);
  if (value.is(Kind::loop)) {
    if (name == "cycle" || name == "changed") return method(value, name);
    return loop_attribute(value.get<LoopState>(), name);
  }
  if (auto found = find_method(value, name)) return *found;
  const Value key = text(name);
  if (auto found = find_item(context, value, key)) return *found;
  return missing(context, value, key);
}

Value item(Context& context, const Value& value, const Value& key) {
  context.budget.spend();
  need_defined(value);
  if (value.is(Kind::loop)) return attribute(context, value, to_text(key, context.budget));
  if (auto found = find_item(context, value, key)) return *found;
  if (key.is(Kind::text))
    if (auto found = find_method(value, key.text())) return *found;
  return missing(context, value, key);
}

Value slice(Context& context, const Value& value, const Value& from, const Value& to,
            const Value& step_value) {
  need_defined(value);
  if (!is_sequence(value) && !value.is(Kind::range))
    return undefined("a " + type_name(value) + " has no slices");
  for (const Value* part : {&from, &to, &step_value})
    if (!part->is(Kind::none) && !is_integral(*part))
      fault(str_cat("a slice has ints for its bounds, not ", type_name(*part)));
  const int64_t size = size_of(value);
  const int64_t step = step_value.is(Kind::none) ? 1 : step_value.integer();
  if (step == 0) fault("the step of a slice cannot be 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto bound = [&](const Value& part, int64_t otherwise) {
    if (part.is(Kind::none)) return otherwise;
    const int64_t at = part.integer();
    return std::clamp(at < 0 ? at + size : at, low, high);
  };
  const int64_t start = bound(from, step > 0 ? low : high), stop = bound(to, step > 0 ? high : low);
  if (value.is(Kind::text) && step == 1) {
    context.budget.spend_bytes(value.text().size());
    return text(std::string(slice_of(value.text(), start, std::max(start, stop))),
                value.get<Text>().markup);
  }
  if (value.is(Kind::range)) {
    const Range& range = value.get<Range>();
    return Value(Kind::range, std::make_shared<Range>(Range{range.start + start * range.step,
                                                            range.start + stop * range.step,
                                                            range.step * step}));
  }
  const Values all = elements(value, context.budget);
  Values chosen;
  const int64_t count = Range{start, stop, step}.size();
  for (int64_t i = 0; i < count; ++i) chosen.push_back(all[size_t(start + i * step)]);
  if (value.is(Kind::text)) return text(joined(context, "", chosen), value.get<Text>().markup);
  return value.is(Kind::tuple) ? tuple(std::move(chosen)) : list(std::move(chosen));
}

}  // namespace phx::jinja
