// What a chat template computes with: Python's values as far as Jinja templates see them. Lists,
// dicts and strings never change once they are made (Jinja's sandbox forbids it too), so values
// share them freely; only namespaces are written to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "phalanx/base/error.h"

namespace phx::jinja {

// What a template got wrong. The renderer adds the template's name and line.
class Fault : public Error {
 public:
  using Error::Error;
};
[[noreturn]] void fault(const std::string& message);

// Steps that a rendering may still take: a hostile template can neither hang nor fill the memory.
// Whoever makes something large asks first.
class Budget {
 public:
  explicit Budget(int64_t steps) : left_(steps) {}
  void spend(int64_t steps = 1) {
    if ((left_ -= steps) < 0) [[unlikely]]
      exhausted();
  }
  void spend_bytes(size_t bytes) { spend(1 + int64_t(bytes / 32)); }

 private:
  [[noreturn]] static void exhausted();
  int64_t left_;
};

enum class Kind {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  range,
  view,      // keys, values or items of a dict
  iterator,  // what lazy filters give: has no length, can be read once, is always true
  space,     // namespace()
  callable,
  loop,
};

class Value;
using Values = std::vector<Value>;

struct Text {
  std::string bytes;    // valid UTF-8
  bool markup = false;  // Python's Markup, from the filters `safe` and `escape`
};
struct Range {
  int64_t start, stop, step;
  int64_t size() const;
};

class Value {
 public:
  Value() = default;  // undefined
  template <class T>
  Value(Kind kind, std::shared_ptr<T> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }
  double real() const { return real_; }
  const std::string& text() const { return get<Text>().bytes; }
  template <class T>
  T& get() const {
    return *static_cast<T*>(object_.get());
  }
  bool same_object(const Value& other) const;  // Python's `is`

  static Value of(bool value);
  static Value of(int64_t value);
  static Value of(double value);
  static Value of(Kind kind, int64_t bits);

 private:
  Kind kind_ = Kind::undefined;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<void> object_;
};

// How deep lists and dicts may hold each other: deeper ones would need too much stack to print.
constexpr int kMaxNesting = 100;

struct List {  // lists and tuples
  Values items;
  int depth = 1;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;     // in the order of insertion
  std::unordered_map<std::string, size_t> texts;  // places of the keys that are strings
  int depth = 1;
};
enum class ViewOf { keys, values, items };
struct View {
  Value dict;
  ViewOf of;
};
struct Iterator {
  Values items;
  size_t next = 0;
  int depth = 1;
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

struct Macro;  // syntax.h
class Scope;   // renderer.h
struct Callable {
  enum class What { function, method, macro };
  What what;
  std::string name;
  Value self;                    // of a method
  const Macro* macro = nullptr;  // and the scope that its body sees, which the renderer keeps
  Scope* scope = nullptr;
  int depth = 1;
};

Value none();
Value text(std::string bytes, bool markup = false);
Value undefined(std::string message);
Value list(Values items);
Value tuple(Values items);
Value iterator(Values items);
Value method(const Value& self, std::string_view name);
Value function(std::string_view name);
Value dict(std::vector<std::pair<Value, Value>> items, Budget& budget);

// The message of the error that using an undefined value is.
std::string undefined_message(const Value& value);
void need_defined(const Value& value);  // or it fails with that message

std::string type_name(const Value& value);  // as Python calls it: "str", "NoneType"
bool truth(const Value& value);
bool is_number(const Value& value);    // bool, int or float
bool is_integral(const Value& value);  // bool or int
double as_real(const Value& value);    // of a number
bool equal(const Value& a, const Value& b, Budget& budget);
bool less(const Value& a, const Value& b, Budget& budget);  // faults where Python has no order
const Value* find(const Dict& dict, const Value& key, Budget& budget);
const Value* find(const Dict& dict, std::string_view key);

std::string to_text(const Value& value, Budget& budget);  // str(): what {{ }} prints
std::string repr(const Value& value, Budget& budget);
std::string real_repr(double value);

// What iterating gives; faults for what cannot be iterated. An iterator is used up by it.
Values elements(const Value& value, Budget& budget);
bool is_iterable(const Value& value);
bool is_indexed(const Value& value);  // a text, a list or a tuple
// len(), or -1 for what has none.
int64_t size_of(const Value& value);

}  // namespace phx::jinja
