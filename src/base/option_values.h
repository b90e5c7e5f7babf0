// How one value of an option is read from text and written back. Specialise OptionValue<T> to give
// a type of your own a place on the command line; give an enum its names with an `option_names`
// function beside it, in the order of its enumerators:
//
//   enum class Normalization { LayerNorm, RMSNorm };
//   constexpr auto option_names(Normalization) { return std::array{"LayerNorm", "RMSNorm"}; }
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"

namespace phx {

// These throw an Error whose wording goes on after the value: "--seed 1.5 is not an integer".
int64_t parse_integer(const std::string& text);
double parse_number(const std::string& text);
bool parse_bool(const std::string& text);

template <class T>
struct OptionValue;

template <>
struct OptionValue<bool> {
  static bool parse(const std::string& text) { return parse_bool(text); }
  static nlohmann::json json(bool value) { return value; }
  static std::string type() { return "switch"; }
};

template <>
struct OptionValue<int64_t> {
  static int64_t parse(const std::string& text) { return parse_integer(text); }
  static nlohmann::json json(int64_t value) { return value; }
  static std::string type() { return "int"; }
};

template <>
struct OptionValue<double> {
  static double parse(const std::string& text) { return parse_number(text); }
  static nlohmann::json json(double value) { return value; }
  static std::string type() { return "float"; }
};

template <>
struct OptionValue<std::string> {
  static std::string parse(const std::string& text) { return text; }
  static nlohmann::json json(const std::string& value) { return value; }
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
  static nlohmann::json json(const T& value) { return value.text(); }
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
  static nlohmann::json json(E value) { return names_of<E>().at(static_cast<size_t>(value)); }
  static std::string type() { return "choice"; }
};

}  // namespace phx
