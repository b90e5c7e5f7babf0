#include "phalanx/base/json.h"

#include <set>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

nlohmann::json parse_json(std::string_view text) { return nlohmann::json::parse(text); }

nlohmann::json try_parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

nlohmann::json parse_strict_json(std::string_view text, int depth) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int at, Event event, nlohmann::json& parsed) {
    PHX_CHECK(at <= depth, "is nested deeper than ", depth, " levels");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const std::string key = parsed.get<std::string>();
      PHX_CHECK(keys.back().insert(key).second, "has \"", key, "\" twice");
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, watch);
  } catch (const nlohmann::json::exception& error) {
    throw_error(str_cat("is not valid JSON: ", error.what()));
  }
}

std::string json_text(const nlohmann::json& value, int indent) { return value.dump(indent); }
std::string json_text(const nlohmann::ordered_json& value, int indent) {
  return value.dump(indent);
}

}  // namespace phx
