// The filters: value | name(arguments).
#pragma once

#include <map>
#include <string_view>

#include "phalanx/text/jinja/builtins.h"

namespace phx::jinja {

using Filter = Value (*)(Context&, const Value&, const Call&);
using FilterTable = std::map<std::string_view, Filter>;

void add_sequence_filters(FilterTable& table);

inline bool is_markup(const Value& value) {
  return value.is(Kind::text) && value.get<Text>().markup;
}

}  // namespace phx::jinja
