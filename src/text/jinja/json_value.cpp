// JSON to values and back: Python's json.loads and json.dumps.
#include <simdjson.h>

#include <algorithm>
#include <cmath>

#include "phalanx/text/jinja/builtins.h"
#include "phalanx/text/jinja/unicode_text.h"

namespace phx::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  std::string run(const Value& value) {
    write(value, 0);
    return std::move(out_);
  }

 private:
  void write(const Value& value, int depth) {
    context_.budget.spend();
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        return;
      case Kind::integer:
        out_ += std::to_string(value.integer());
        return;
      case Kind::real:
        out_ += number(value.real());
        return;
      case Kind::text:
        return write_text(value.text());
      case Kind::list:
      case Kind::tuple:
        return write_list(value.get<List>().items, depth);
      case Kind::dict:
        return write_dict(value.get<Dict>(), depth);
      case Kind::undefined:
        fault("tojson: " + undefined_message(value));
      default:
        fault("tojson: a " + type_name(value) + " cannot be written as JSON");
    }
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_repr(value);
  }

  void line(int depth) {
    if (!style_.indent) return;
    out_ += '\n';
    context_.budget.spend_bytes(style_.indent->size() * size_t(depth));
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
  }

  void write_list(const Values& items, int depth) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(depth + 1);
      write(items[i], depth + 1);
    }
    line(depth);
    out_ += ']';
  }

  std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::text:
        return key.text();
      case Kind::none:
        return "null";
      case Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Kind::integer:
        return std::to_string(key.integer());
      case Kind::real:
        return number(key.real());
      default:
        fault("tojson: a " + type_name(key) + " cannot be a key in JSON");
    }
  }

  void write_dict(const Dict& dict, int depth) {
    if (dict.items.empty()) {
      out_ += "{}";
      return;
    }
    auto items = dict.items;
    context_.budget.spend(int64_t(items.size()));
    if (style_.sort_keys)
      std::ranges::stable_sort(items, [&](const auto& a, const auto& b) {
        return less(a.first, b.first, context_.budget);
      });
    out_ += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      line(depth + 1);
      write_text(key_text(items[i].first));
      out_ += style_.key_separator;
      write(items[i].second, depth + 1);
    }
    line(depth);
    out_ += '}';
  }

  void write_unit(unsigned unit) {
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", unit & 0xFFFFu);
    out_ += escape;
  }

  void write_text(const std::string& source) {
    context_.budget.spend_bytes(source.size());
    static constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    out_ += '"';
    for (const std::string_view character : characters(source)) {
      const char32_t c = code_point(character);
      if (const size_t special = c < 0x80 ? kSpecial.find(char(c)) : std::string_view::npos;
          special != std::string_view::npos) {
        out_ += '\\';
        out_ += kLetters[special];
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E && c < 0x10000)) {
        write_unit(unsigned(c));
      } else if (style_.ensure_ascii && c >= 0x10000) {
        write_unit(unsigned(0xD800 + ((c - 0x10000) >> 10)));
        write_unit(unsigned(0xDC00 + ((c - 0x10000) & 0x3FF)));
      } else {
        out_ += character;
      }
    }
    out_ += '"';
  }

  Context& context_;
  const JsonStyle& style_;
  std::string out_;
};

Value from_json(const simdjson::dom::element& element, Budget& budget) {
  using simdjson::dom::element_type;
  switch (element.type()) {
    case element_type::ARRAY: {
      Values items;
      for (const simdjson::dom::element part : simdjson::dom::array(element))
        items.push_back(from_json(part, budget));
      return list(std::move(items));
    }
    case element_type::OBJECT: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto field : simdjson::dom::object(element))
        items.emplace_back(text(std::string(field.key)), from_json(field.value, budget));
      return dict(std::move(items), budget);
    }
    case element_type::INT64:
      return Value::of(int64_t(element));
    case element_type::UINT64:
      fault(str_cat("the number ", uint64_t(element), " is larger than a signed 64-bit one"));
    case element_type::DOUBLE:
      return Value::of(double(element));
    case element_type::STRING:
      return text(std::string(std::string_view(element)));
    case element_type::BOOL:
      return Value::of(bool(element));
    case element_type::NULL_VALUE:
      return none();
  }
  return none();
}

}  // namespace

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  return JsonWriter(context, style).run(value);
}

Value parse_json(std::string_view json) {
  thread_local simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  PHX_CHECK(!error, "this is not valid JSON: ", simdjson::error_message(error));
  Budget unlimited(INT64_MAX);  // the data is the user's own, and bounded by its size
  return from_json(root, unlimited);
}

}  // namespace phx::jinja
