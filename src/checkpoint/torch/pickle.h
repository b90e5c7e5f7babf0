// Reads Python pickles (protocols 2 to 5) as data. Nothing is ever executed: a class or function of
// the stream is only its name, and what would have been called becomes an object that remembers the
// name and the arguments. Even as names only those of a short list are taken (pickle_names.h), so
// that a file which would harm the next program is refused here, by the name of what it calls.
//
// Streams may come from anywhere. The work and the memory are bounded by the length of the stream;
// values may be shared and may even contain themselves, so whoever walks them must count his steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    large_integer,  // beyond 64 bits: `text` holds its little-endian two's complement
    real,
    text,
    bytes,
    tuple,
    list,
    set,
    dict,        // also OrderedDict and its like, which have a callee
    global,      // `text` is "module.name"
    object,      // what calling `callee` with `args` would have made
    persistent,  // `args` is the id that the writer gave: torch's storages
  };

  Kind kind = Kind::none;
  union {
    int64_t integer = 0;  // also of a boolean
    double real;
  };
  std::string_view text;  // in the stream itself, or in the tree
  // Of a tuple, list or set its elements; of a dict key, value, key, value; of an object what was
  // appended to it or set in it.
  std::vector<const PickleValue*> items;
  const PickleValue* callee = nullptr;  // a global
  const PickleValue* args = nullptr;
  const PickleValue* state = nullptr;  // given afterwards (BUILD): usually a dict of attributes

  bool is(Kind wanted) const { return kind == wanted; }
  bool is_sequence() const { return kind == Kind::tuple || kind == Kind::list; }
  // The object (or dict) that calling `name` makes.
  bool is_object_of(std::string_view name) const {
    return callee != nullptr && callee->text == name;
  }
  // The value of a text key of a dict; of an object, the attribute. Null if there is none. Linear:
  // not for large dicts in a loop.
  const PickleValue* find(std::string_view key) const;
  std::optional<int64_t> as_integer() const;  // of an integer that fits
};

// "a dict of 3", "the global torch.float32", for messages.
std::string describe(const PickleValue& value);

struct PickleLimits {
  int64_t max_bytes = int64_t{1} << 30;  // looked at; a longer pickle reads as one cut off
  int64_t max_values = int64_t{1} << 26;
  int64_t max_marks = 1000;  // containers begun and not ended: what nesting costs a writer
};

class PickleTree {
 public:
  // Reads one pickle from the front of `bytes`, which must outlive the tree; `where` names it in
  // errors ("model.pt: data.pkl").
  PickleTree(std::span<const std::byte> bytes, const std::string& where,
             const PickleLimits& limits = {});

  const PickleValue& root() const { return *root_; }
  const std::deque<PickleValue>& values() const { return values_; }  // all, in no useful order
  int64_t size() const { return static_cast<int64_t>(values_.size()); }
  int64_t consumed() const { return consumed_; }  // bytes of the stream, with the final STOP

 private:
  friend class PickleReader;

  std::deque<PickleValue> values_;  // at fixed addresses; destroyed without recursion
  std::set<std::string> names_;
  const PickleValue* root_ = nullptr;
  int64_t consumed_ = 0;
};

}  // namespace phx
