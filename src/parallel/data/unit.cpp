#include "phalanx/parallel/data/unit.h"

#include <algorithm>
#include <string_view>

namespace phx {

std::string unit_of(const std::string& parameter) {
  const std::string_view name = parameter;
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!part.empty() && std::ranges::all_of(part, is_digit))
      return std::string(name.substr(0, end));
    begin = end + 1;
  }
  return std::string(name.substr(0, name.find('.')));
}

}  // namespace phx
