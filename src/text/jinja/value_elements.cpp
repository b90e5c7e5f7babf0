// What a loop over a value sees.
#include <algorithm>

#include "phalanx/text/jinja/unicode_text.h"
#include "phalanx/text/jinja/value.h"

namespace phx::jinja {

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

namespace {

Values elements_of_dict(const Dict& dict, ViewOf of) {
  Values items;
  items.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    if (of == ViewOf::items)
      items.push_back(tuple({key, value}));
    else
      items.push_back(of == ViewOf::keys ? key : value);
  }
  return items;
}

}  // namespace

Values elements(const Value& value, Budget& budget) {
  budget.spend(1 + std::max<int64_t>(0, size_of(value)));
  switch (value.kind()) {
    case Kind::undefined:
      return {};
    case Kind::text: {
      Values items;
      for (const std::string_view character : characters(value.text()))
        items.push_back(text(std::string(character)));
      return items;
    }
    case Kind::list:
    case Kind::tuple:
      return value.get<List>().items;
    case Kind::dict:
      return elements_of_dict(value.get<Dict>(), ViewOf::keys);
    case Kind::view:
      return elements_of_dict(value.get<View>().dict.get<Dict>(), value.get<View>().of);
    case Kind::range: {
      const Range& range = value.get<Range>();
      Values items;
      for (int64_t i = 0, n = range.size(); i < n; ++i)
        items.push_back(Value::of(range.start + i * range.step));
      return items;
    }
    case Kind::iterator: {
      Iterator& source = value.get<Iterator>();
      Values items(source.items.begin() + int64_t(source.next), source.items.end());
      source.next = source.items.size();
      budget.spend(int64_t(items.size()));
      return items;
    }
    case Kind::loop:
      fault("iterating over `loop` itself is not supported");
    default:
      fault(str_cat("a ", type_name(value), " cannot be iterated"));
  }
}

}  // namespace phx::jinja
