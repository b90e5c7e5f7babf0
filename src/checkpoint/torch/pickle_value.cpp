#include "phalanx/base/error.h"
#include "phalanx/base/format.h"
#include "phalanx/checkpoint/torch/pickle.h"

namespace phx {

using Kind = PickleValue::Kind;

std::string describe(const PickleValue& value) {
  const auto count = [&](const char* what) { return str_cat(what, " of ", value.items.size()); };
  switch (value.kind) {
    case Kind::none:
      return "None";
    case Kind::boolean:
      return value.integer ? "True" : "False";
    case Kind::integer:
      return str_cat("the number ", value.integer);
    case Kind::large_integer:
      return "a number beyond 64 bits";
    case Kind::real:
      return str_cat("the number ", value.real);
    case Kind::text:
      return str_cat("the text '", printable(value.text), "'");
    case Kind::bytes:
      return str_cat(value.text.size(), " bytes");
    case Kind::tuple:
      return count("a tuple");
    case Kind::list:
      return count("a list");
    case Kind::set:
      return count("a set");
    case Kind::dict:
      return str_cat("a dict of ", value.items.size() / 2);
    case Kind::global:
      return str_cat("the name ", printable(value.text));
    case Kind::object:
      return str_cat("an object of ", printable(value.callee->text));
    case Kind::persistent:
      return "a storage";
  }
  return "";
}

const PickleValue* PickleValue::find(std::string_view key) const {
  const PickleValue* pairs = this;
  if (kind != Kind::dict) {
    pairs = state;
    // Objects with slots have a tuple: the attributes, and the slots.
    if (pairs != nullptr && pairs->is(Kind::tuple) && !pairs->items.empty())
      pairs = pairs->items[0];
  }
  if (pairs == nullptr || pairs->kind != Kind::dict) return nullptr;
  for (size_t i = pairs->items.size(); i >= 2; i -= 2) {  // from behind: the last one counts
    const PickleValue& name = *pairs->items[i - 2];
    if (name.is(Kind::text) && name.text == key) return pairs->items[i - 1];
  }
  return nullptr;
}

std::optional<int64_t> PickleValue::as_integer() const {
  if (kind != Kind::integer) return std::nullopt;
  return integer;
}

}  // namespace phx
