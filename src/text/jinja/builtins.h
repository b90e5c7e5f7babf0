// What templates can call and do with values: operators, attributes, methods, filters, tests and
// functions, each as Python and Jinja2 define it. What is not here is refused by its name.
#pragma once

#include <ctime>
#include <deque>
#include <functional>
#include <optional>

#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

// What one rendering shares.
struct Context {
  Budget budget;
  std::tm now = {};  // of strftime_now
  // Every namespace that was made: emptied at the end, since one can hold itself.
  std::vector<std::shared_ptr<Namespace>> namespaces = {};
};

struct Call {
  Values positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

// The arguments of a call by the names of its parameters, in their order.
class Bound {
 public:
  // Faults for an argument too many, one that has no parameter, or two for the same one.
  Bound(std::string_view function, const Call& call, std::initializer_list<std::string_view> names);

  const Value* find(size_t parameter) const { return given_[parameter]; }  // null: not given
  const Value& at(size_t parameter) const;                                 // faults if not given
  const std::string& text(size_t parameter) const;
  int64_t integer(size_t parameter) const;
  int64_t integer(size_t parameter, int64_t otherwise) const;
  bool truth(size_t parameter, bool otherwise) const;
  bool is_none(size_t parameter) const;  // or not given

 private:
  std::string function_;
  std::vector<std::string> names_;
  std::vector<const Value*> given_;
};

// The `loop` of a for loop. Items are pulled one by one, as the loop's own condition may depend on
// what its body does.
struct LoopState {
  std::function<std::optional<Value>()> pull;
  std::deque<Value> ahead;  // pulled already
  Value current, before;
  int64_t index0 = -1;
  std::optional<int64_t> length;
  std::optional<Values> changed;

  const Value* peek();
  int64_t total();
};

Value binary(Context& context, std::string_view operation, const Value& a, const Value& b);
Value negated(const Value& value);
bool compare(Context& context, std::string_view operation, const Value& a, const Value& b);
bool contains(Context& context, const Value& container, const Value& item);

Value attribute(Context& context, const Value& value, const std::string& name);  // value.name
Value item(Context& context, const Value& value, const Value& key);              // value[key]
Value slice(Context& context, const Value& value, const Value& from, const Value& to,
            const Value& step);  // none where left out
// The first method of this name: none, or an undefined value where the sandbox forbids it.
std::optional<Value> find_method(const Value& value, const std::string& name);

Value call_method(Context& context, const Value& self, const std::string& name, const Call& call);
Value call_text_method(Context& context, const Value& self, const std::string& name,
                       const Call& call);
Value call_function(Context& context, const std::string& name, const Call& call);
bool has_function(std::string_view name);

Value apply_filter(Context& context, const std::string& name, const Value& value, const Call& call);
bool apply_test(Context& context, const std::string& name, const Value& value, const Call& call);

// Text helpers shared by methods and filters.
std::string replaced(Context& context, std::string_view text, std::string_view old,
                     std::string_view by, int64_t count);
std::string joined(Context& context, std::string_view separator, const Values& items);
std::string escaped(std::string_view text);  // for HTML, as MarkupSafe does
std::string percent_format(Context& context, std::string_view format, const Value& values);
std::string brace_format(Context& context, std::string_view format, const Call& call);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent = {};
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Context& context, const Value& value, const JsonStyle& style);

// The value of a JSON text; an Error says what is wrong with it.
Value parse_json(std::string_view json);

}  // namespace phx::jinja
