// Writes a Python pickle of protocol 2, the one that every torch reads. The calls follow the order
// in which a pickle is read: values go on a stack, and containers take what lies above their mark.
//
//   PickleWriter w;                       // {"a": torch.Size((2, 3))}
//   w.dict([&] { w.text("a"); w.size({2, 3}); });
//   w.finish();
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace phx {

class PickleWriter {
 public:
  PickleWriter();

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view value);                            // UTF-8
  void global(std::string_view module, std::string_view name);  // written once, then referred to

  // `contents` pushes the elements, or keys and values by turns.
  template <class Contents>
  void tuple(Contents&& contents) {
    op('(');
    contents();
    op('t');
  }
  template <class Contents>
  void list(Contents&& contents) {
    op(']');
    op('(');
    contents();
    op('e');
  }
  template <class Contents>
  void dict(Contents&& contents) {
    op('}');
    op('(');
    contents();
    op('u');
  }
  // An object of a class: made without arguments, then given `state`.
  template <class State>
  void object(std::string_view module, std::string_view name, State&& state) {
    global(module, name);
    op(')');
    op(0x81);
    state();
    op('b');
  }
  template <class Arguments>
  void call(std::string_view module, std::string_view name, Arguments&& arguments) {
    global(module, name);
    tuple(arguments);
    op('R');
  }
  template <class Id>
  void persistent(Id&& id) {
    tuple(id);
    op('Q');
  }
  void integers(std::span<const int64_t> values);  // a tuple of them
  void size(std::span<const int64_t> dims);        // torch.Size

  // The whole pickle; nothing may follow.
  const std::string& finish();

 private:
  void op(uint8_t byte) { bytes_.push_back(static_cast<char>(byte)); }
  template <class T>
  void number(T value);

  std::string bytes_;
  std::map<std::string, uint32_t> memo_;  // of globals
};

}  // namespace phx
