#include "phalanx/base/option_values.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace phx {
namespace {

// from_chars knows no leading plus; Python does.
std::string_view without_plus(const std::string& text) {
  std::string_view view = text;
  if (view.size() > 1 && view[0] == '+' && view[1] != '-') view.remove_prefix(1);
  return view;
}

}  // namespace

int64_t parse_integer(const std::string& text) {
  const std::string_view view = without_plus(text);
  int64_t value = 0;
  const auto [end, status] = std::from_chars(view.data(), view.data() + view.size(), value);
  PHX_CHECK(status != std::errc::result_out_of_range, "is too large for an integer of 64 bits");
  PHX_CHECK(status == std::errc{} && end == view.data() + view.size(), "is not an integer");
  return value;
}

double parse_number(const std::string& text) {
  const std::string_view view = without_plus(text);
  double value = 0;
  const auto [end, status] = std::from_chars(view.data(), view.data() + view.size(), value);
  PHX_CHECK(status != std::errc::result_out_of_range, "does not fit a number of 64 bits");
  PHX_CHECK(status == std::errc{} && end == view.data() + view.size() && std::isfinite(value),
            "is not a number");
  return value;
}

bool parse_bool(const std::string& text) {
  for (const char* yes : {"true", "True", "1", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"false", "False", "0", "no", "off"}) {
    if (text == no) return false;
  }
  throw_error("is neither true nor false");
}

void write_json(nlohmann::json& out, bool value) { out = value; }
void write_json(nlohmann::json& out, int64_t value) { out = value; }
void write_json(nlohmann::json& out, double value) { out = value; }
void write_json(nlohmann::json& out, const std::string& value) { out = value; }
void write_null(nlohmann::json& out) { out = nullptr; }
void write_list(nlohmann::json& out) { out = nlohmann::json::array(); }
nlohmann::json& next_item(nlohmann::json& list) { return list.emplace_back(); }

}  // namespace phx
