// Equality and order of values, as Python compares them.
#include <algorithm>

#include "phalanx/text/jinja/value.h"

namespace phx::jinja {
namespace {

// 64 bits of mantissa: every int64 and every double is exact.
long double exact(const Value& value) {
  return value.is(Kind::real) ? static_cast<long double>(value.real())
                              : static_cast<long double>(value.integer());
}

bool equal_lists(const Values& a, const Values& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], budget)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(b, key, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (is_number(a) && is_number(b)) return exact(a) == exact(b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      budget.spend_bytes(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return equal_lists(a.get<List>().items, b.get<List>().items, budget);
    case Kind::dict:
      return equal_dicts(a.get<Dict>(), b.get<Dict>(), budget);
    case Kind::range: {
      const Range &x = a.get<Range>(), &y = b.get<Range>();
      const int64_t size = x.size();
      return size == y.size() && (size == 0 || x.start == y.start) &&
             (size <= 1 || x.step == y.step);
    }
    default:
      return a.same_object(b);
  }
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend();
  if (is_number(a) && is_number(b)) return exact(a) < exact(b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // bytes of UTF-8 sort as code points do
  }
  if (a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple))) {
    const Values &x = a.get<List>().items, &y = b.get<List>().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    return x.size() < y.size();
  }
  for (const Value* value : {&a, &b})
    if (value->is(Kind::undefined)) fault(undefined_message(*value));
  fault(str_cat("'<' and its kin do not go between ", type_name(a), " and ", type_name(b)));
}

}  // namespace phx::jinja
