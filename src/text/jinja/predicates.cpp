// The tests: `value is name`.
#include <cmath>
#include <map>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/syntax.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

using Test = bool (*)(Context&, const Value&, const Call&);

template <Kind... kKinds>
bool is_kind(Context&, const Value& value, const Call& call) {
  const Bound bound("this test", call, {});
  return (value.is(kKinds) || ...);
}

int64_t remainder(Context& context, const Value& value, const Value& divisor) {
  const Value rest = binary(context, "%", value, divisor);
  return is_integral(rest) ? rest.integer() : rest.real() == 0 ? 0 : rest.real() == 1 ? 1 : 2;
}

template <int kRest>
bool has_rest_of_two(Context& context, const Value& value, const Call& call) {
  const Bound bound("this test", call, {});
  return remainder(context, value, Value::of(int64_t{2})) == kRest;
}

bool divisible(Context& context, const Value& value, const Call& call) {
  const Bound bound("divisibleby", call, {"num"});
  return remainder(context, value, bound.at(0)) == 0;
}

bool is_defined(Context&, const Value& value, const Call& call) {
  const Bound bound("defined", call, {});
  return !value.is(Kind::undefined);
}

template <bool kValue>
bool is_bool(Context&, const Value& value, const Call& call) {
  const Bound bound("this test", call, {});
  return value.is(Kind::boolean) && value.boolean() == kValue;
}

bool is_sequence(Context&, const Value& value, const Call& call) {
  const Bound bound("sequence", call, {});
  switch (value.kind()) {
    case Kind::undefined:  // has a length, and can be asked for items, if in vain
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
      return true;
    default:
      return false;
  }
}

bool can_iterate(Context&, const Value& value, const Call& call) {
  const Bound bound("iterable", call, {});
  return is_iterable(value);
}

bool same_as(Context&, const Value& value, const Call& call) {
  const Bound bound("sameas", call, {"other"});
  const Value& other = bound.at(0);
  const bool settled = value.kind() != other.kind() || value.is(Kind::none) ||
                       value.is(Kind::boolean) || value.same_object(other);
  if (!settled && !value.is(Kind::list) && !value.is(Kind::dict))
    fault(
        "sameas is supported for none, booleans, lists and dicts only: whether other equal "
        "values are one object is an accident");
  return value.same_object(other);
}

bool is_in(Context& context, const Value& value, const Call& call) {
  const Bound bound("in", call, {"seq"});
  return contains(context, bound.at(0), value);
}

bool is_escaped(Context&, const Value& value, const Call& call) {
  const Bound bound("escaped", call, {});
  return value.is(Kind::text) && value.get<Text>().markup;
}

template <bool kUpper>
bool has_case(Context& context, const Value& value, const Call& call) {
  const Value source = text(to_text(value, context.budget));
  return truth(call_text_method(context, source, kUpper ? "isupper" : "islower", call));
}

// Which comparison a test of this name is.
const char* comparison(std::string_view name) {
  static const std::map<std::string_view, const char*> all = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="},    {"!=", "!="}, {"ne", "!="},
      {">", ">"},   {"gt", ">"},  {"greaterthan", ">"}, {"ge", ">="}, {">=", ">="},
      {"<", "<"},   {"lt", "<"},  {"lessthan", "<"},    {"<=", "<="}, {"le", "<="},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

const std::map<std::string_view, Test>& tests() {
  static const std::map<std::string_view, Test> all = {
      {"boolean", is_kind<Kind::boolean>},
      {"callable", is_kind<Kind::callable, Kind::loop, Kind::undefined>},  // as in Python
      {"defined", is_defined},
      {"divisibleby", divisible},
      {"escaped", is_escaped},
      {"even", has_rest_of_two<0>},
      {"false", is_bool<false>},
      {"float", is_kind<Kind::real>},
      {"in", is_in},
      {"integer", is_kind<Kind::integer>},
      {"iterable", can_iterate},
      {"lower", has_case<false>},
      {"mapping", is_kind<Kind::dict>},
      {"none", is_kind<Kind::none>},
      {"number", is_kind<Kind::boolean, Kind::integer, Kind::real>},
      {"odd", has_rest_of_two<1>},
      {"sameas", same_as},
      {"sequence", is_sequence},
      {"string", is_kind<Kind::text>},
      {"true", is_bool<true>},
      {"undefined", is_kind<Kind::undefined>},
      {"upper", has_case<true>},
  };
  return all;
}

}  // namespace

bool has_test(std::string_view name) {
  return comparison(name) != nullptr || tests().contains(name);
}

bool apply_test(Context& context, const std::string& name, const Value& value, const Call& call) {
  context.budget.spend();
  if (const char* operation = comparison(name)) {
    const Bound bound(name, call, {"other"});
    return compare(context, operation, value, bound.at(0));
  }
  const auto found = tests().find(name);
  if (found == tests().end()) fault("the test '" + name + "' is not supported");
  return found->second(context, value, call);
}

}  // namespace phx::jinja
