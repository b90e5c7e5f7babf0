// Values as text: Python's str() and repr().
#include <algorithm>
#include <charconv>
#include <cmath>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"
#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view digits(buffer, size_t(end.ptr - buffer));
  const size_t e = digits.find('e');
  int exponent = 0;
  const char* sign = buffer + e + 1;
  std::from_chars(*sign == '+' ? sign + 1 : sign, end.ptr, exponent);
  // Python writes 1e16 and 1e-05, and whatever is between without an exponent.
  if (exponent >= 16 || exponent < -4) return std::string(digits);
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

namespace {

void write(const Value& value, bool quoted, std::string& out, Budget& budget);

void write_list(const Values& items, const char* open, const char* close, std::string& out,
                Budget& budget) {
  out += open;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    write(items[i], /*quoted=*/true, out, budget);
  }
  out += close;
}

void write_dict(const Dict& dict, std::string& out, Budget& budget) {
  out += '{';
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out += ", ";
    write(dict.items[i].first, /*quoted=*/true, out, budget);
    out += ": ";
    write(dict.items[i].second, /*quoted=*/true, out, budget);
  }
  out += '}';
}

void write_namespace(const Namespace& space, std::string& out, Budget& budget) {
  thread_local std::vector<const Namespace*> inside;  // a namespace may hold itself
  if (std::ranges::find(inside, &space) != inside.end()) {
    out += "<Namespace {...}>";
    return;
  }
  if (inside.size() > kMaxNesting) fault("namespaces are nested too deep to be printed");
  struct Inside {
    explicit Inside(const Namespace* space) { inside.push_back(space); }
    ~Inside() { inside.pop_back(); }
  } entered(&space);
  out += "<Namespace {";
  for (size_t i = 0; i < space.items.size(); ++i) {
    if (i > 0) out += ", ";
    out += quote(space.items[i].first) + ": ";
    write(space.items[i].second, /*quoted=*/true, out, budget);
  }
  out += "}>";
}

void write_range(const Range& range, std::string& out) {
  out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) out += ", " + std::to_string(range.step);
  out += ')';
}

void write(const Value& value, bool quoted, std::string& out, Budget& budget) {
  budget.spend();
  switch (value.kind()) {
    case Kind::undefined:
      if (quoted) out += "Undefined";
      return;
    case Kind::none:
      out += "None";
      return;
    case Kind::boolean:
      out += value.boolean() ? "True" : "False";
      return;
    case Kind::integer:
      out += std::to_string(value.integer());
      return;
    case Kind::real:
      out += real_repr(value.real());
      return;
    case Kind::text: {
      const Text& text = value.get<Text>();
      budget.spend_bytes(text.bytes.size());
      if (!quoted) {
        out += text.bytes;
      } else {
        out += text.markup ? "Markup(" + quote(text.bytes) + ")" : quote(text.bytes);
      }
      return;
    }
    case Kind::list:
      return write_list(value.get<List>().items, "[", "]", out, budget);
    case Kind::tuple: {
      const Values& items = value.get<List>().items;
      return write_list(items, "(", items.size() == 1 ? ",)" : ")", out, budget);
    }
    case Kind::dict:
      return write_dict(value.get<Dict>(), out, budget);
    case Kind::range:
      return write_range(value.get<Range>(), out);
    case Kind::view:
      out += type_name(value);
      return write_list(elements(value, budget), "([", "])", out, budget);
    case Kind::space:
      return write_namespace(value.get<Namespace>(), out, budget);
    case Kind::loop: {
      LoopState& loop = value.get<LoopState>();
      out += str_cat("<LoopContext ", loop.index0 + 1, "/", loop.total(), ">");
      return;
    }
    case Kind::callable:
      if (value.get<Callable>().what == Callable::What::macro) {
        out += "<Macro " + quote(value.get<Callable>().name) + ">";
        return;
      }
      [[fallthrough]];
    default:
      fault(str_cat("a ", type_name(value), " is printed, which has no text of its own",
                    value.is(Kind::iterator) ? "; `| list` makes a list of it" : ""));
  }
}

}  // namespace

std::string to_text(const Value& value, Budget& budget) {
  std::string out;
  write(value, /*quoted=*/false, out, budget);
  return out;
}

std::string repr(const Value& value, Budget& budget) {
  std::string out;
  write(value, /*quoted=*/true, out, budget);
  return out;
}

}  // namespace phx::jinja
