// The machine that a pickle drives: a stack, marks on it, and a memo. What its opcodes do is in
// pickle.cpp; not for others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/pickle.h"
#include "phalanx/checkpoint/torch/pickle_names.h"
#include "phalanx/checkpoint/torch/pickle_opcodes.h"

namespace phx {

// Every step looks at the stack before it takes from it, and takes at most what lies above the last
// mark.
class PickleReader {
 public:
  using Kind = PickleValue::Kind;

  PickleReader(std::span<const std::byte> bytes, const std::string& where,
               const PickleLimits& limits, PickleTree& tree)
      : bytes_(bytes.first(std::min(bytes.size(), static_cast<size_t>(limits.max_bytes)))),
        where_(where),
        limits_(limits),
        tree_(tree) {
    none_ = make(Kind::none);
    true_ = make(Kind::boolean);
    true_->integer = 1;
    false_ = make(Kind::boolean);
    empty_tuple_ = make(Kind::tuple);
  }

  void run() {
    PHX_CHECK(bytes_.size() >= 2 && byte_at(0) == pickle_op::kProto, where_,
              ": a pickle of protocol 2 or newer begins with the byte 0x80; is this one?");
    while (true) {
      op_at_ = at_;
      const uint8_t op = take_number<uint8_t>();
      if (op == pickle_op::kStop) break;
      step(op);
    }
    tree_.root_ = pop();
    PHX_CHECK(stack_.empty() && marks_.empty(), here(), "values are left over at the end");
    tree_.consumed_ = static_cast<int64_t>(at_);
  }

 private:
  // PHX_CHECK makes its message only when it is needed.
  std::string here() const { return str_cat(where_, ": at byte ", op_at_, " of the pickle: "); }

  uint8_t byte_at(size_t i) const { return static_cast<uint8_t>(bytes_[i]); }

  std::string_view take(uint64_t count) {
    PHX_CHECK(count <= bytes_.size() - at_, here(), "the pickle is cut off: ", count,
              " bytes are needed, ", bytes_.size() - at_, " are left");
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += count;
    return {begin, static_cast<size_t>(count)};
  }

  template <class T>
  T take_number() {  // little endian, like the machines we run on
    const std::string_view raw = take(sizeof(T));
    T number;
    std::memcpy(&number, raw.data(), sizeof(T));
    return number;
  }

  std::string_view take_line() {
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
    const void* end = std::memchr(begin, '\n', bytes_.size() - at_);
    PHX_CHECK(end != nullptr, here(), "the pickle is cut off inside a name");
    const std::string_view line = take(static_cast<const char*>(end) - begin);
    at_ += 1;
    return line;
  }

  PickleValue* make(Kind kind) {
    PHX_CHECK(tree_.size() < limits_.max_values, here(), "more than ", limits_.max_values,
              " values");
    PickleValue& value = tree_.values_.emplace_back();
    value.kind = kind;
    return &value;
  }

  // How far the stack may be taken from: to the last mark.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue* pop() {
    PHX_CHECK(stack_.size() > floor(), here(), "a value is taken from an empty stack");
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }

  PickleValue* top() const {
    PHX_CHECK(stack_.size() > floor(), here(), "a value is taken from an empty stack");
    return stack_.back();
  }

  void push(PickleValue* value) { stack_.push_back(value); }

  void push_text(Kind kind, std::string_view text) {
    PickleValue* value = make(kind);
    value->text = text;
    push(value);
  }

  void push_integer(int64_t number) {
    PickleValue* value = make(Kind::integer);
    value->integer = number;
    push(value);
  }

  void push_long(std::string_view raw) {
    if (raw.size() > 8) return push_text(Kind::large_integer, raw);
    uint64_t number = 0;
    if (!raw.empty() && (raw.back() & 0x80)) number = ~uint64_t{0};
    std::memcpy(&number, raw.data(), raw.size());
    push_integer(static_cast<int64_t>(number));
  }

  // What was pushed since the last mark, which goes away.
  std::vector<const PickleValue*> pop_mark() {
    PHX_CHECK(!marks_.empty(), here(), "a mark is taken where there is none");
    const size_t begin = marks_.back();
    marks_.pop_back();
    std::vector<const PickleValue*> items(stack_.begin() + static_cast<ptrdiff_t>(begin),
                                          stack_.end());
    stack_.resize(begin);
    return items;
  }

  void push_collection(Kind kind, std::vector<const PickleValue*> items) {
    PickleValue* value = make(kind);
    value->items = std::move(items);
    push(value);
  }

  void push_tuple(size_t count) {
    std::vector<const PickleValue*> items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_collection(Kind::tuple, std::move(items));
  }

  void append(std::span<const PickleValue* const> items) {
    PickleValue* target = top();
    PHX_CHECK(target->is(Kind::list) || target->is(Kind::object), here(),
              "elements are appended to ", describe(*target));
    target->items.insert(target->items.end(), items.begin(), items.end());
  }

  void set_items(std::span<const PickleValue* const> items) {
    PickleValue* target = top();
    PHX_CHECK(target->is(Kind::dict) || target->is(Kind::object), here(), "keys are set in ",
              describe(*target));
    PHX_CHECK(items.size() % 2 == 0, here(), "a key is set without a value");
    target->items.insert(target->items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    // Names in the stream are short; a long one is only a way to make errors long.
    PHX_CHECK(module.size() <= 200 && name.size() <= 200, here(), "a name of ",
              module.size() + name.size(), " bytes");
    PHX_CHECK(
        pickle_name(module, name) != PickleName::refused, here(), printable(module), ".",
        printable(name),
        " is not on the list of names that a checkpoint may hold; the file was not read further");
    PickleValue* value = make(Kind::global);
    value->text = *tree_.names_.insert(str_cat(module, ".", name)).first;
    value->integer = static_cast<int64_t>(pickle_name(module, name));
    push(value);
  }

  void push_stack_global() {
    const PickleValue *name = pop(), *module = pop();
    PHX_CHECK(name->is(Kind::text) && module->is(Kind::text), here(), "a global is named by ",
              describe(*module), " and ", describe(*name), " instead of two texts");
    push_global(module->text, name->text);
  }

  static PickleName role(const PickleValue& global) {
    return static_cast<PickleName>(global.integer);
  }

  // What a call would make: REDUCE, NEWOBJ and NEWOBJ_EX alike.
  void push_call(const PickleValue* callee, const PickleValue* args) {
    PHX_CHECK(callee->is(Kind::global), here(), describe(*callee),
              " is called; only names of the list are");
    PHX_CHECK(args->is(Kind::tuple), here(), callee->text, " is called with ", describe(*args),
              " instead of a tuple");
    const PickleName name = role(*callee);
    PHX_CHECK(name != PickleName::value, here(), callee->text, " is called, but it is a constant");
    if (name == PickleName::member_of) {
      const bool member = args->items.size() == 2 && args->items[0]->is(Kind::global) &&
                          role(*args->items[0]) == PickleName::enumeration &&
                          args->items[1]->is(Kind::text) && !args->items[1]->text.starts_with("__");
      PHX_CHECK(member, here(), callee->text,
                " is taken for members of known enumerations alone, not for ",
                args->items.empty() ? "nothing" : describe(*args->items[0]));
    }
    PickleValue* value = make(name == PickleName::dictionary ? Kind::dict : Kind::object);
    value->callee = callee;
    value->args = args;
    if (name == PickleName::dictionary) fill_dictionary(*value, *args);
    push(value);
  }

  // OrderedDict([[key, value], ..]) as old Pythons wrote it; defaultdict(list) has only a name.
  void fill_dictionary(PickleValue& dict, const PickleValue& args) {
    if (args.items.empty() || !args.items[0]->is(Kind::list)) return;
    // Counted, or a short stream could have one long list copied again and again.
    copied_ += args.items[0]->items.size();
    PHX_CHECK(copied_ <= bytes_.size(), here(), dict.callee->text,
              " is made of the same list again and again");
    for (const PickleValue* pair : args.items[0]->items) {
      PHX_CHECK(pair->is_sequence() && pair->items.size() == 2, here(), dict.callee->text,
                " is made of ", describe(*pair), " instead of pairs");
      dict.items.insert(dict.items.end(), pair->items.begin(), pair->items.end());
    }
  }

  void build() {
    const PickleValue* state = pop();
    PickleValue* target = top();
    PHX_CHECK(target->callee != nullptr, here(), "state is given to ", describe(*target));
    target->state = state;
  }

  void put(uint64_t index) {
    // Writers count their entries, and every entry takes bytes: an index beyond them is no memo but
    // a way to have the reader fill memory.
    PHX_CHECK(index <= at_, here(), "entry ", index, " of the memo is set at byte ", at_);
    if (index >= memo_.size()) memo_.resize(index + 1, nullptr);
    memo_[index] = top();
  }

  void get(uint64_t index) {
    PHX_CHECK(index < memo_.size() && memo_[index] != nullptr, here(), "entry ", index,
              " of the memo is used, but was never set");
    push(memo_[index]);
  }

  void step(uint8_t op);
  bool step_atom(uint8_t op);
  bool step_collection(uint8_t op);

  std::span<const std::byte> bytes_;
  const std::string& where_;
  const PickleLimits& limits_;
  PickleTree& tree_;
  size_t at_ = 0, op_at_ = 0, copied_ = 0;
  std::vector<PickleValue*> stack_, memo_;
  std::vector<size_t> marks_;
  // Shared, since they cannot change: a stream of one-byte opcodes then costs next to nothing.
  PickleValue *none_, *true_, *false_, *empty_tuple_;
};

}  // namespace phx
