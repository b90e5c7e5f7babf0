#include <algorithm>
#include <cmath>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {

namespace {

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
  if (operation == "*" && is_indexed(a) && is_integral(b)) return repeated(context, a, b.integer());
  if (operation == "*" && is_indexed(b) && is_integral(a)) return repeated(context, b, a.integer());
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

}  // namespace phx::jinja
