// JSON text in and out. The library's parser and writer are templates that cost every source a
// second to compile; these are compiled once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace phx {

nlohmann::json parse_json(std::string_view text);      // throws nlohmann::json::exception
nlohmann::json try_parse_json(std::string_view text);  // is_discarded() where it is none

// Of a file that others wrote: refuses the same key twice, of which the library keeps the last one
// silently, and what is nested deeper than `depth`. Throws an Error with a predicate ("is not valid
// JSON: ..").
nlohmann::json parse_strict_json(std::string_view text, int depth);

// In one line, or indented by so many spaces.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace phx
