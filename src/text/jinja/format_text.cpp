// Python's two older ways to format: 'text %s' % values and 'text {}'.format(values), as far as
// templates use them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

constexpr int kMaxWidth = 1000;

struct Directive {
  std::string flags;
  int width = -1, precision = -1;
  char kind = 0;
};

int take_number(std::string_view& rest) {
  int value = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    value = value * 10 + (rest[0] - '0');
    if (value > kMaxWidth) fault(str_cat("a format is wider than ", kMaxWidth));
    rest.remove_prefix(1);
  }
  return value;
}

Directive take_directive(std::string_view& rest) {  // behind the %
  Directive made;
  while (!rest.empty() && std::string_view("-+ 0#").find(rest[0]) != std::string_view::npos) {
    made.flags += rest[0];
    rest.remove_prefix(1);
    if (made.flags.size() > 5) fault("a format has too many flags");
  }
  if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') made.width = take_number(rest);
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    made.precision = take_number(rest);
  }
  if (rest.empty()) fault("a format ends after its %");
  made.kind = rest[0];
  rest.remove_prefix(1);
  return made;
}

std::string text_field(const Directive& directive, std::string piece) {
  if (directive.precision >= 0 && length_of(piece) > directive.precision)
    piece = std::string(slice_of(piece, 0, directive.precision));
  const int64_t missing = std::max<int64_t>(0, directive.width - length_of(piece));
  const std::string blanks(size_t(missing), ' ');
  return directive.flags.find('-') == std::string::npos ? blanks + piece : piece + blanks;
}

std::string number_field(const Directive& directive, const Value& value) {
  if (!is_number(value))
    fault(str_cat("%", directive.kind, " needs a number, not ", type_name(value)));
  std::string pattern = "%";
  pattern += directive.flags;
  if (directive.width >= 0) pattern += std::to_string(directive.width);
  if (directive.precision >= 0) pattern += "." + std::to_string(directive.precision);
  char buffer[2 * kMaxWidth + 400];
  int size = 0;
  if (std::string_view("dixXo").find(directive.kind) != std::string_view::npos) {
    const bool decimal = directive.kind == 'd' || directive.kind == 'i';
    if (value.is(Kind::real) &&
        (!decimal || std::abs(value.real()) >= 9e18 || std::isnan(value.real())))
      fault(str_cat("%", directive.kind, " cannot show this float"));
    const int64_t integer = value.is(Kind::real) ? int64_t(value.real()) : value.integer();
    if (!decimal && (integer < 0 || directive.flags.find('#') != std::string::npos))
      fault(str_cat("%", directive.kind, " is supported for plain numbers from 0 on"));
    pattern += std::string("ll") + directive.kind;
    size = std::snprintf(buffer, sizeof buffer, pattern.c_str(), static_cast<long long>(integer));
  } else {
    pattern += directive.kind;
    size = std::snprintf(buffer, sizeof buffer, pattern.c_str(), as_real(value));
  }
  return std::string(buffer, size_t(std::clamp<int>(size, 0, int(sizeof buffer) - 1)));
}

}  // namespace

std::string percent_format(Context& context, std::string_view format, const Value& values) {
  const bool many = values.is(Kind::tuple);
  const Values single = {values};
  const Values& given = many ? values.get<List>().items : single;
  size_t used = 0;
  std::string out;
  while (!format.empty()) {
    const size_t mark = std::min(format.find('%'), format.size());
    context.budget.spend_bytes(mark);
    out += format.substr(0, mark);
    if (mark == format.size()) break;
    format.remove_prefix(mark + 1);
    if (format.starts_with('(')) fault("%(name) in a format is not supported");
    const Directive directive = take_directive(format);
    if (directive.kind == '%') {
      out += '%';
      continue;
    }
    if (used >= given.size()) fault("a format has more places than there are values");
    const Value& value = given[used++];
    if (directive.kind == 's' || directive.kind == 'r') {
      out += text_field(directive, directive.kind == 's' ? to_text(value, context.budget)
                                                         : repr(value, context.budget));
    } else if (std::string_view("dixXofFeEgG").find(directive.kind) != std::string_view::npos) {
      out += number_field(directive, value);
    } else {
      fault(str_cat("%", directive.kind, " in a format is not supported"));
    }
    context.budget.spend_bytes(kMaxWidth);
  }
  // What has items is taken for a dict of named values, which need not be used.
  const bool has_items = values.is(Kind::dict) || values.is(Kind::list) || values.is(Kind::range) ||
                         values.is(Kind::undefined);
  if (used < given.size() && !has_items) fault("a format has fewer places than there are values");
  return out;
}

std::string brace_format(Context& context, std::string_view format, const Call& call) {
  std::string out;
  size_t next = 0;
  const auto field = [&](std::string_view name) -> const Value& {
    if (name.find_first_of("!:.[") != std::string_view::npos)
      fault(str_cat("{", name, "} in str.format is not supported: only {}, {0} and {name} are"));
    if (!name.empty() && (name[0] < '0' || name[0] > '9')) {
      for (const auto& [key, value] : call.named)
        if (key == name) return value;
      fault(str_cat("str.format has no value for {", name, "}"));
    }
    const size_t index = name.empty() ? next++ : size_t(take_number(name));
    if (index >= call.positional.size()) fault("str.format has too few values");
    return call.positional[index];
  };
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    const bool twice = i + 1 < format.size() && format[i + 1] == c;
    if ((c != '{' && c != '}') || twice) {
      out += c;
      if (c == '{' || c == '}') ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (c == '}' || end == std::string_view::npos) fault("str.format: a brace stands alone");
    const std::string piece = to_text(field(format.substr(i + 1, end - i - 1)), context.budget);
    context.budget.spend_bytes(piece.size());
    out += piece;
    i = end;
  }
  context.budget.spend_bytes(format.size());
  return out;
}

}  // namespace phx::jinja
