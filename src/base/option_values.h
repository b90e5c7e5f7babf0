// How one value of an option is read from text and written back. Specialise OptionValue<T> to give
// a type of your own a place on the command line; give an enum its names with an `option_names`
// function beside it, in the order of its enumerators:
//
//   enum class Normalization { LayerNorm, RMSNorm };
//   constexpr auto option_names(Normalization) { return std::array{"LayerNorm", "RMSNorm"}; }
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "phalanx/base/error.h"

namespace phx {

// These throw an Error whose wording goes on after the value: "--seed 1.5 is not an integer".
int64_t parse_integer(const std::string& text);
double parse_number(const std::string& text);
bool parse_bool(const std::string& text);

// The library's full header is heavy and a config is bound in many places: these hide it.
void write_json(nlohmann::json& out, bool value);
void write_json(nlohmann::json& out, int64_t value);
void write_json(nlohmann::json& out, double value);
void write_json(nlohmann::json& out, const std::string& value);
void write_json(nlohmann::json& out, const char* value) = delete;  // it would become a bool
void write_null(nlohmann::json& out);
void write_list(nlohmann::json& out);             // an empty one
nlohmann::json& next_item(nlohmann::json& list);  // a new one at its end

template <class T>
struct OptionValue;

template <>
struct OptionValue<bool> {
  static bool parse(const std::string& text) { return parse_bool(text); }
  static void write(nlohmann::json& out, bool value) { write_json(out, value); }
  static std::string type() { return "switch"; }
};

template <>
struct OptionValue<int64_t> {
  static int64_t parse(const std::string& text) { return parse_integer(text); }
  static void write(nlohmann::json& out, int64_t value) { write_json(out, value); }
  static std::string type() { return "int"; }
};

template <>
struct OptionValue<double> {
  static double parse(const std::string& text) { return parse_number(text); }
  static void write(nlohmann::json& out, double value) { write_json(out, value); }
  static std::string type() { return "float"; }
};

template <>
struct OptionValue<std::string> {
  static std::string parse(const std::string& text) { return text; }
  static void write(nlohmann::json& out, const std::string& value) { write_json(out, value); }
  static std::string type() { return "text"; }
};

// A class with parse(text), text() and kTypeName: it needs to know nothing of this header.
template <class T>
requires requires(const T& value, const std::string& text) {
  T::parse(text);
  value.text();
  T::kTypeName;
}
struct OptionValue<T> {
  static T parse(const std::string& text) { return T::parse(text); }
  static void write(nlohmann::json& out, const T& value) { write_json(out, value.text()); }
  static std::string type() { return T::kTypeName; }
};

template <class E>
requires std::is_enum_v<E> std::vector<std::string> names_of() {
  const auto names = option_names(E{});
  return {names.begin(), names.end()};
}

template <class E>
requires std::is_enum_v<E>
struct OptionValue<E> {
  static E parse(const std::string& text) {
    const std::vector<std::string> names = names_of<E>();
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == text) return static_cast<E>(i);
    }
    throw_error(str_cat("\"", text, "\" is no choice"));  // the registry checks choices before this
  }
  static void write(nlohmann::json& out, E value) {
    write_json(out, names_of<E>().at(static_cast<size_t>(value)));
  }
  static std::string type() { return "choice"; }
};

}  // namespace phx
