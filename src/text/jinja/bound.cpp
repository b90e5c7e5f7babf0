#include <algorithm>

#include "phalanx/text/jinja/builtins.h"

namespace phx::jinja {

Bound::Bound(std::string_view function, const Call& call,
             std::initializer_list<std::string_view> names)
    : function_(function), names_(names.begin(), names.end()), given_(names.size(), nullptr) {
  if (call.positional.size() > names_.size())
    fault(str_cat(function, " takes ", names_.size(), " arguments at most, not ",
                  call.positional.size()));
  for (size_t i = 0; i < call.positional.size(); ++i) given_[i] = &call.positional[i];
  for (const auto& [name, value] : call.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) fault(str_cat(function, " has no argument called ", name));
    const Value*& place = given_[size_t(found - names_.begin())];
    if (place != nullptr) fault(str_cat(function, " got its argument ", name, " twice"));
    place = &value;
  }
}

const Value& Bound::at(size_t parameter) const {
  if (given_[parameter] == nullptr)
    fault(str_cat(function_, " needs its argument ", names_[parameter]));
  return *given_[parameter];
}

const std::string& Bound::text(size_t parameter) const {
  const Value& value = at(parameter);
  if (!value.is(Kind::text))
    fault(str_cat(function_, ": ", names_[parameter], " should be a str, not ", type_name(value)));
  return value.text();
}

int64_t Bound::integer(size_t parameter) const {
  const Value& value = at(parameter);
  if (!is_integral(value))
    fault(str_cat(function_, ": ", names_[parameter], " should be an int, not ", type_name(value)));
  return value.integer();
}

int64_t Bound::integer(size_t parameter, int64_t otherwise) const {
  return is_none(parameter) ? otherwise : integer(parameter);
}

bool Bound::truth(size_t parameter, bool otherwise) const {
  return given_[parameter] == nullptr ? otherwise : jinja::truth(*given_[parameter]);
}

bool Bound::is_none(size_t parameter) const {
  return given_[parameter] == nullptr || given_[parameter]->is(Kind::none);
}

}  // namespace phx::jinja
